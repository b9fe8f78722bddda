"""Merge: the listings of this run and of the last, by what the crawl could see."""

import polars as pl

from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.result import CrawlResult


def merge_listings(previous: pl.DataFrame, result: CrawlResult) -> pl.DataFrame:
    """The rows of LISTINGS to publish after a crawl.

    Only a complete pass may say that a server is gone, and not of a record that is still listed
    but could not be read in this run. A pass over changes takes away only what the marketplace
    itself calls deleted. A record that named several servers stands as `id#key`: it goes by its id.
    """
    seen = result.frame["listing_id"].implode()
    record = pl.col("native_id").str.split("#").list.first()
    read_again = result.frame.select(record)["native_id"].unique().implode()
    kept = previous.filter(~pl.col("listing_id").is_in(seen) & ~record.is_in(read_again))
    if result.changes_only:
        kept = kept.filter(~record.is_in(pl.Series(result.gone, dtype=pl.String).implode()))
    elif result.completeness == "complete":
        unread = pl.Series(sorted(result.unread), dtype=pl.String).implode()
        kept = kept.filter(record.is_in(unread))
    return pl.concat([result.frame, kept]).select(list(LISTINGS.columns)).sort(LISTINGS.key)
