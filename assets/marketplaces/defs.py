"""Asset definition of `listings`."""

from collections.abc import Mapping

import dagster as dg
import polars as pl

from assets.marketplaces.crawl.crawl import KEY_MISSING, crawl, load_adapter
from assets.marketplaces.crawl.result import CrawlResult, merge_listings
from assets.marketplaces.listing import PRIVATE
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from assets.partitions import close_run_after, marketplaces
from warehouse.audit import AuditVerdict
from warehouse.progress import ProgressLines
from warehouse.publish import (
    Published,
    audit_table,
    describe_asset,
    escape_description,
    publish,
    refuse,
)
from warehouse.store import Warehouse

FLOOR = 0.7  # a crawl that was not complete must still bring this share of the last rows
LISTINGS_AUDIT = audit_table(
    LISTINGS,
    rules={
        "rows_floor": f"A complete crawl brings a listing, unless it is of one's own files; another"
        f" at least {FLOOR:.0%} of those before it."
    },
)


@dg.asset(
    **describe_asset(LISTINGS_AUDIT, "assets/marketplaces", partitions=marketplaces),
    group_name="marketplaces",
    pool="crawl",
    # A marketplace whose key is not set makes no version and no failure: it is skipped.
    output_required=False,
    description="What each marketplace says about each server, in one normal form.",
)
def listings(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    crawlers: dg.ResourceParam[Mapping[str, CrawlPolicy]],
) -> Published:
    name = context.partition_key
    ledger = warehouse.ledger
    chosen = load_adapter(name, crawlers[name])
    run_date = ledger.open_run(name)
    try:
        result = crawl(
            chosen,
            ledger=ledger,
            memo=warehouse.memo,
            run_date=run_date,
            progress=ProgressLines(context.log.info),
        )
    except CrawlError as error:
        if not error.passing:
            # What this run fetched does not fit together: the next one fetches everything again.
            ledger.close_run(name)
        yield from refuse(context, warehouse, LISTINGS_AUDIT, "crawl", error)
        return
    if result.completeness == KEY_MISSING:
        ledger.close_run(name)
        hint = result.problems[0]["hint"]
        context.log.warning(hint)
        context.log_event(
            dg.AssetObservation(
                "listings",
                partition=context.partition_key,
                metadata={"completeness": result.completeness, "hint": hint},
            )
        )
        for name in LISTINGS_AUDIT.checks:
            yield dg.AssetCheckResult(
                asset_key="listings",
                check_name=name,
                passed=False,
                severity=dg.AssetCheckSeverity.WARN,
                description=escape_description(f"{result.completeness}: {hint}"),
            )
        return
    previous = warehouse.tables.read(LISTINGS, result.marketplace)
    frame = merge_listings(previous, result)
    yield from publish(
        context,
        warehouse,
        LISTINGS_AUDIT,
        frame,
        rules=[_check_reasons(frame), _check_floor(result, len(previous))],
        metadata={
            "completeness": result.completeness,
            "requests": result.requests,
            "pages": result.pages,
            "runnable": int(frame["runnable"].sum() or 0),
            "hit_rate": "no record read" if result.hit_rate is None else round(result.hit_rate, 3),
            "duplicates": result.duplicates,
            "problems": dg.MetadataValue.json(result.problems),
        },
    )
    close_run_after(context, ledger, "listings")


def _check_reasons(frame: pl.DataFrame) -> AuditVerdict:
    mute = frame.filter(~pl.col("runnable") & pl.col("reason").is_null())["listing_id"].to_list()
    observed = f"{len(mute)} without either" + (f", e.g. {mute[0]}" if mute else "")
    return AuditVerdict("runnable_or_reason", not mute, observed, "a runnable recipe or a reason")


def _check_floor(result: CrawlResult, before: int) -> AuditVerdict:
    count = len(result.frame)
    least = 0 if result.marketplace == PRIVATE else 1
    if result.completeness != "complete":
        least = max(1, round(FLOOR * before))
    expected = f"at least {least} (the crawl was {result.completeness}, {before} listings before)"
    return AuditVerdict("rows_floor", count >= least, f"{count} listings", expected)
