"""What one crawl saw: its rows, how it ended, and what could not be read."""

from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from assets.marketplaces.listing import Listing, read_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlError

# How a crawl ended. Only a `complete` pass may mark a server gone.
Completeness = Literal["complete", "capped", "truncated", "skipped: key missing", "failed"]


@dataclass(frozen=True)
class CrawlResult:
    """What one crawl saw. `frame` holds the listings as rows of LISTINGS, sorted by native id:
    columns take a fifth of the memory of objects, and a marketplace may list 100,000 servers.

    `requests` were sent in this run, `pages` were used (sent or read from the ledger); `problems`
    are rows {native_id, url, status, error_kind, hint}; `hit_rate` is the share of records that
    were read and held launch evidence.
    """

    marketplace: str
    frame: pl.DataFrame
    completeness: Completeness
    requests: int
    pages: int
    duplicates: list[str]
    problems: list[dict[str, Any]]
    hit_rate: float | None = None

    @property
    def listings(self) -> list[Listing]:
        """The listings as objects, rebuilt on every access."""
        return [read_row(row) for row in self.frame.iter_rows(named=True)]

    @property
    def unread(self) -> set[str]:
        """Ids of records that are listed but could not be read: not gone, whatever else is."""
        return {row["native_id"] for row in self.problems if row["native_id"]}


def make_problem(native_id: str, url: str, kind: str, hint: str) -> dict[str, Any]:
    """A row about one record that could not be read."""
    return {
        "native_id": native_id,
        "url": url,
        "status": "failed",
        "error_kind": kind,
        "hint": hint,
    }


def merge_listings(previous: pl.DataFrame, result: CrawlResult) -> pl.DataFrame:
    """The rows of LISTINGS to publish after a crawl.

    Only a complete pass may say that a server is gone, and not of a record that is still listed
    but could not be read in this run. A record that named several servers stands as `id#key`: it
    goes by its id.
    """
    listing_ids = result.frame["listing_id"].implode()
    record = pl.col("native_id").str.split("#").list.first()
    read_again = result.frame.select(record)["native_id"].unique().implode()
    earlier = previous.filter(~pl.col("listing_id").is_in(listing_ids) & ~record.is_in(read_again))
    if result.completeness == "complete":
        unread = pl.Series(sorted(result.unread), dtype=pl.String).implode()
        earlier = earlier.filter(record.is_in(unread))
    return pl.concat([result.frame, earlier]).select(list(LISTINGS.columns)).sort(LISTINGS.key)


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
