"""Errors of requests: what each found, what was due, and what to do."""

from assets.marketplaces.policy import CrawlError


def make_forbidden(url: str, found: str, expected: set[str]) -> CrawlError:
    return CrawlError(
        "forbidden_host",
        url,
        found,
        f"one on {' or '.join(sorted(expected))}",
        "the marketplace must not send the crawler to another host; report the record",
    )


def make_unreachable(url: str, error: Exception) -> CrawlError:
    return CrawlError(
        "unreachable",
        url,
        f"{type(error).__name__}: {error}",
        "an answer",
        "check that the marketplace is up and the base URL right; the last run's listings stay",
    )


def make_bad_status(url: str, status: int) -> CrawlError:
    fixes = {
        401: "it wants a key, or refuses the one that was sent",
        403: "it refuses crawlers",
        429: "lower requests_per_second; what was read is kept for the next run",
    }
    kind = "rate_limited" if status in (429, 503) else "http_status"
    fix = fixes.get(status, "try later")
    return CrawlError(kind, url, f"status {status}", "200", fix, status=status)


def make_broken_gzip(url: str, why: str) -> CrawlError:
    return CrawlError("truncated", url, f"broken gzip ({why})", "gzip", "try later")


def make_too_large(url: str, found: str, cap: int) -> CrawlError:
    fix = "raise max_body_mb if the marketplace is trusted"
    return CrawlError("too_large", url, found, f"at most {cap:,}", fix)
