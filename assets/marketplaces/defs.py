"""The door of the marketplaces: the asset `listings`."""

from collections.abc import Mapping

import dagster as dg
import polars as pl

from assets.marketplaces.crawl import CrawlError, CrawlPolicy, CrawlResult, adapter, crawl
from assets.marketplaces.listing import LISTINGS, listing_digest, to_row
from assets.partitions import close_night_after, marketplaces
from warehouse.audit import Expect, Verdict, expect_match, expect_present, expect_unique
from warehouse.progress import Lines
from warehouse.publish import Published, audited, publish, refuse
from warehouse.store import Warehouse
from warehouse.tables import plan

EXPECTATIONS: list[Expect] = [
    expect_unique("listing_id"),
    expect_present("name"),
    expect_match("listing_digest", "^[0-9a-f]{64}$"),
]
FLOOR = 0.7  # a crawl that was not complete must still bring this share of yesterday's rows


@dg.asset(
    partitions_def=marketplaces,
    group_name="marketplaces",
    check_specs=audited("listings"),
    pool="crawl",
    description="What each marketplace says about each server, in one normal form.",
)
def listings(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    crawlers: dg.ResourceParam[Mapping[str, CrawlPolicy]],
) -> Published:
    name = context.partition_key
    ledger = warehouse.ledger
    night = ledger.night(name)
    try:
        progress = Lines(context.log.info)
        result = crawl(adapter(name, crawlers[name]), ledger=ledger, night=night, progress=progress)
    except CrawlError as error:
        # What was fetched tonight does not fit together: the next run looks at the world anew.
        ledger.close_night(name)
        yield from refuse(context, warehouse, "listings", "crawl", error)
        return
    yield from _publish(context, warehouse, result)
    close_night_after(context, ledger, "listings")


def _publish(
    context: dg.AssetExecutionContext, warehouse: Warehouse, result: CrawlResult
) -> Published:
    previous = warehouse.tables.read(LISTINGS, result.marketplace)
    rows = [to_row(listing) for listing in result.listings]
    seen = {row["listing_id"] for row in rows}
    if result.completeness != "complete":
        # Only a complete pass may say that a server is gone.
        rows += [row for row in previous.to_dicts() if row["listing_id"] not in seen]
    frame = LISTINGS.frame(rows)
    yield from publish(
        context,
        warehouse,
        LISTINGS,
        frame,
        expectations=EXPECTATIONS,
        rules=[_runnable_or_reason(frame), _floor(result, len(seen), len(previous))],
        plan=plan(
            dict(previous.select("listing_id", "listing_digest").iter_rows()),
            {listing.listing_id: listing_digest(listing) for listing in result.listings},
        ),
        metadata={
            "completeness": result.completeness,
            "requests": result.requests,
            "pages": result.pages,
            "runnable": int(frame["runnable"].sum() or 0),
            "duplicates": result.duplicates,
            "problems": dg.MetadataValue.json(result.problems),
        },
    )


def _runnable_or_reason(frame: pl.DataFrame) -> Verdict:
    mute = frame.filter(~pl.col("runnable") & pl.col("reason").is_null())["listing_id"].to_list()
    observed = f"{len(mute)} without either" + (f", e.g. {mute[0]}" if mute else "")
    return Verdict("runnable_or_reason", not mute, observed, "a runnable recipe or a reason")


def _floor(result: CrawlResult, seen: int, before: int) -> Verdict:
    least = 1 if result.completeness == "complete" else max(1, round(FLOOR * before))
    expected = f"at least {least} (the crawl was {result.completeness}, yesterday {before})"
    return Verdict("rows_floor", seen >= least, f"{seen} listings", expected)
