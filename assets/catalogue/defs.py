"""Asset definition of `catalogue`."""

import time as clock
from collections import Counter
from collections.abc import Iterable, Sequence

import dagster as dg

from assets.catalogue.catalogue import CATALOGUE, build_catalogue, read_listing_ids
from assets.catalogue.identity import LEVELS
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from warehouse.audit import AuditVerdict
from warehouse.json_types import Record
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.store import Warehouse

CATALOGUE_AUDIT = audit_table(CATALOGUE)
_SHOWN = 15  # rows of an example table


def compute_figures(rows: Sequence[Record]) -> dict[str, int]:
    """Counts that say how far the marketplaces overlap and how much is confirmed."""
    current = [row for row in rows if row["gone"] is None]
    several = [row for row in current if len(row["marketplaces"]) > 1]
    return {
        "servers": len(current),
        "on_several_marketplaces": len(several),
        "confirmed": sum(row["confirmed"] is True for row in several),
        "contradicted": sum(row["confirmed"] is False for row in several),
        "not_run_twice": sum(row["confirmed"] is None for row in several),
        "servers_gone": len(rows) - len(current),
        "gone_from_some": sum(row["gone_from"] != "[]" for row in current),
    }


def render_tables(rows: Sequence[Record]) -> dict[str, Markdown]:
    """Markdown tables by what they show."""
    current = [row for row in rows if row["gone"] is None]
    joins = Counter(row["joined_by"] for row in current if row["joined_by"])
    sets = Counter(" + ".join(row["marketplaces"]) for row in current if row["marketplaces"])
    return {
        "joined": _render_counts("joined by", [(level, joins[level]) for level in LEVELS]),
        "marketplaces": _render_counts("marketplaces", sets.most_common(_SHOWN)),
    }


def _render_counts(what: str, counts: Iterable[tuple[str, int]]) -> Markdown:
    # Counts first: the UI cuts a wide cell at its right.
    lines = [[f"{count:,}", name] for name, count in counts if count]
    return make_markdown_table(["servers", what], lines)


@dg.asset(
    **describe_asset(CATALOGUE_AUDIT, "assets/catalogue"),
    deps=["listings", "snapshots"],
    group_name="catalogue",
    description="One row per server across all marketplaces: who lists it.",
)
def catalogue_asset(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    listings = read_rows(warehouse.tables.read(LISTINGS).to_dicts())
    columns = ["marketplace", "server_id", "tool", "contract_digest"]
    snapshots = warehouse.tables.read(SNAPSHOTS).select(columns).to_dicts()
    previous = warehouse.tables.read(CATALOGUE).to_dicts()
    rows = build_catalogue(listings, snapshots, previous, clock.time())
    yield from publish(
        context,
        warehouse,
        CATALOGUE_AUDIT,
        CATALOGUE.frame(rows),
        rules=[
            check_one_row_each({listing.listing_id for listing in listings}, rows),
            check_listed_or_gone(rows),
        ],
        metadata=compute_figures(rows)
        | {f"table_{name}": text for name, text in render_tables(rows).items()},
    )


def check_one_row_each(listed: set[str], rows: list[Record]) -> AuditVerdict:
    """Every current listing stands in exactly one row, and no other does."""
    counts = Counter(name for row in rows for name in read_listing_ids(row))
    wrong = sorted(
        [name for name in listed if counts[name] != 1]
        + [name for name in counts if name not in listed]
    )
    observed = f"{len(wrong)} listings not in one row" + (f", e.g. {wrong[0]}" if wrong else "")
    return AuditVerdict(
        "one_row_each", not wrong, observed, f"{len(listed)} listings, each in one row"
    )


def check_listed_or_gone(rows: list[Record]) -> AuditVerdict:
    """A row has listings or the date since when it has none."""
    wrong = [
        row["catalogue_id"] for row in rows if bool(read_listing_ids(row)) == bool(row["gone"])
    ]
    observed = f"{len(wrong)} rows neither or both" + (f", e.g. {wrong[0]}" if wrong else "")
    return AuditVerdict("listed_or_gone", not wrong, observed, "listings, or the date they went")
