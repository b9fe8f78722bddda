"""Ad hoc: one marketplace crawled, for a person at a terminal."""

from typing import Any

from assets.marketplaces.crawl.result import CrawlResult, make_problem
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import CrawlError


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
