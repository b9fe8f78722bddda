"""Ad hoc: one saved payload parsed, one marketplace crawled, for a person at a terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.marketplaces.crawl.crawl import load_adapter, read_record
from assets.marketplaces.crawl.result import CrawlResult, make_problem
from assets.marketplaces.listing import PRIVATE, Listing
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage
from warehouse.sanitize.redact import redact

_CAP = 64 * 1024 * 1024


def parse_file(marketplace: str, path: Path) -> list[dict[str, Any]]:
    """The listings of one saved payload. Raises CrawlError where the marketplace serves no such
    thing, or the file cannot be read."""
    chosen = load_adapter(marketplace, CrawlPolicy(base_url=f"https://{marketplace}.invalid"))
    page = _read_page(path)
    if marketplace != PRIVATE:  # the user's own files are read as they are
        page = replace(page, body=redact(page.decode_text()).encode())
    return [
        make_public_listing(item)
        for ref in chosen.saved(page)
        for item in read_record(chosen, ref, ref.raw)
    ]


def make_public_listing(listing: Listing) -> dict[str, Any]:
    """A listing in the normal form, as JSON values."""
    about = {"__all__": {"description"}}  # of a variable: long, and said to a person elsewhere
    left_out = {"launch": True, "tools": True, "env": about, "headers": about}
    return listing.model_dump(mode="json", exclude=left_out)


def summarise_crawl(result: CrawlResult) -> dict[str, Any]:
    """What a crawl saw."""
    return {
        "marketplace": result.marketplace,
        "completeness": result.completeness,
        "requests": result.requests,
        "pages": result.pages,
        "hit_rate": result.hit_rate,
        "listings": [make_public_listing(listing) for listing in result.listings],
        "duplicates": result.duplicates,
        "problems": result.problems,
    }


def summarise_failure(marketplace: str, error: CrawlError) -> dict[str, Any]:
    """A crawl that could not go on, in the same form."""
    return {
        "marketplace": marketplace,
        "completeness": "failed",
        "listings": [],
        "problems": [make_problem("", error.url, error.kind, str(error))],
    }


def _read_page(path: Path) -> FetchedPage:
    try:
        with path.open("rb") as file:
            body = file.read(_CAP + 1)
    except OSError as error:
        raise _make_unreadable(path, error.strerror or str(error), "a readable file") from error
    if len(body) > _CAP:
        raise _make_unreadable(path, f"more than {_CAP:,} bytes", f"at most {_CAP:,}")
    if not body.strip():
        raise _make_unreadable(path, "an empty file", "a saved list or detail page")
    return FetchedPage(path.name, _guess_content_type(body), body)


def _guess_content_type(body: bytes) -> str:
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return "application/json"
    return "text/html" if start.startswith(b"<") else "text/plain"


def _make_unreadable(path: Path, found: str, expected: str) -> CrawlError:
    fix = "give the path of a payload that the marketplace served"
    return CrawlError("unreadable", str(path), found, expected, fix)
