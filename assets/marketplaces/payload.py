"""Payload: whether a response is what the marketplace serves, before it is recorded as done."""

import json
from collections.abc import Callable
from typing import Any

from assets.marketplaces.policy import CrawlError, FetchedPage

FIX = "the last run's listings stay; if the site changed, the adapter needs a new fixture"


def parse_json(page: FetchedPage) -> Any:
    """The JSON value of a response. Raises CrawlError (wrong_type, empty, truncated)."""
    if "json" not in page.content_type:
        start = page.decode_text()[:60].replace("\n", " ")
        problem = f"{page.content_type or 'no content type'} starting {start!r}"
        raise CrawlError("wrong_type", page.url, problem, "JSON", FIX)
    if not page.body.strip():
        raise CrawlError("empty", page.url, "an empty body with status 200", "JSON", FIX)
    try:
        return json.loads(page.body)
    except (ValueError, RecursionError) as error:
        problem = f"JSON broken off after {len(page.body):,} bytes ({error})"
        raise CrawlError("truncated", page.url, problem, "JSON", FIX) from error


def check_json_list(
    key: str, *, empty_is_fine: bool = False, beside: str | None = None
) -> Callable[[FetchedPage], dict[str, Any]]:
    """A check that a response is a JSON object whose member `key` is a list, and whose member
    `beside`, where one is named, is an object.

    An empty first page is an error: it looks like the end of a marketplace that lost everything.
    """
    kinds: dict[str, type] = {key: list} | ({beside: dict} if beside else {})

    def check(page: FetchedPage) -> dict[str, Any]:
        body = parse_json_object(page, *kinds)
        for name, kind in kinds.items():
            if not isinstance(body[name], kind):
                problem = f"`{name}` of type {type(body[name]).__name__}"
                expected = f"a {kind.__name__} `{name}`"
                raise CrawlError("missing_key", page.url, problem, expected, FIX)
        if not body[key] and not empty_is_fine:
            problem = f"an empty `{key}` with status 200"
            raise CrawlError("empty", page.url, problem, "at least one record", FIX)
        return body

    return check


def parse_json_object(page: FetchedPage, *keys: str) -> dict[str, Any]:
    """The JSON object of a response that has all of `keys`. Raises CrawlError."""
    body = parse_json(page)
    expected = "a JSON object" + (f" with {', '.join(keys)}" if keys else "")
    if not isinstance(body, dict):
        raise CrawlError("missing_key", page.url, type(body).__name__, expected, FIX)
    if missing := [key for key in keys if key not in body]:
        problem = f"keys {sorted(body)[:6]} without {missing[0]!r}"
        raise CrawlError("missing_key", page.url, problem, expected, FIX)
    return body


def read_html(page: FetchedPage) -> str:
    """The HTML of a page. Raises CrawlError where it is not HTML or is cut."""
    text = page.decode_text()
    if "html" not in page.content_type:
        raise CrawlError("wrong_type", page.url, page.content_type or "no type", "HTML", FIX)
    if not text.strip():
        raise CrawlError("empty", page.url, "an empty body with status 200", "HTML", FIX)
    if "</html>" not in text[-2000:].lower() and "<html" in text[:2000].lower():
        problem = f"HTML broken off after {len(page.body):,} bytes"
        raise CrawlError("truncated", page.url, problem, "a whole page", FIX)
    return text


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
