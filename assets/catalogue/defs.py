"""Asset definitions of `catalogue` and `coverage`."""

import time as clock
from collections import Counter

import dagster as dg

from assets.catalogue.catalogue import CATALOGUE, build_catalogue, read_listing_ids
from assets.catalogue.coverage import (
    COVERAGE,
    DIMENSIONS,
    collect_servers,
    compute_coverage_figures,
    compute_figures,
    measure_coverage,
    render_table,
    render_tables,
)
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from warehouse.audit import (
    AuditVerdict,
    expect_between,
    expect_match,
    expect_one_of,
    expect_present,
    expect_unique,
)
from warehouse.json_types import Record
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.store import Warehouse

CATALOGUE_AUDIT = audit_table(
    CATALOGUE,
    [
        expect_unique("catalogue_id"),
        expect_match("catalogue_id", "^cat:[0-9a-f]{20}$"),
        expect_present("name"),
        expect_match("first_seen", r"^\d{4}-\d\d-\d\d$"),
    ],
    rules=["one_row_each", "listed_or_gone"],
)
COVERAGE_AUDIT = audit_table(
    COVERAGE,
    [
        expect_unique("dimension", "value"),
        expect_one_of("dimension", list(DIMENSIONS)),
        expect_one_of("standing", ["under", "over", "as listed", "unknown"]),
        expect_between("listed_share", 0.0, 1.0),
        expect_between("launched_share", 0.0, 1.0),
        expect_between("distance_p", 0.0, 1.0),
    ],
    rules=["adds_up"],
)


@dg.asset(
    **describe_asset(CATALOGUE_AUDIT, "assets/catalogue"),
    deps=["listings", "snapshots"],
    group_name="catalogue",
    description="One row per server across all marketplaces: who lists it, where they differ.",
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


@dg.asset(
    **describe_asset(COVERAGE_AUDIT, "assets/catalogue"),
    deps=["catalogue", "deployments", "listings"],
    group_name="catalogue",
    description="Which kinds of servers are missing among the launched ones, against all listed.",
)
def coverage_asset(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    listings = read_rows(warehouse.tables.read(LISTINGS).to_dicts())
    ran = warehouse.tables.read(DEPLOYMENTS).filter(status="ok").select("server_id", "n_tools")
    current = [
        {**row, "listing_ids": read_listing_ids(row)}
        for row in warehouse.tables.read(CATALOGUE).to_dicts()
        if row["gone"] is None
    ]
    servers = collect_servers(
        current, {listing.listing_id: listing for listing in listings}, dict(ran.iter_rows())
    )
    rows = measure_coverage(servers)
    yield from publish(
        context,
        warehouse,
        COVERAGE_AUDIT,
        COVERAGE.frame(rows),
        rules=[check_sums(rows, len(servers), sum(item.launched for item in servers))],
        metadata={
            **compute_coverage_figures(rows),
            "table": render_table(rows),
        },
    )


def check_sums(rows: list[Record], listed: int, launched: int) -> AuditVerdict:
    """Every server has one value in each dimension; sizes are known of launched servers only."""
    wrong = []
    for dimension in DIMENSIONS:
        mine = [row for row in rows if row["dimension"] == dimension]
        if sum(row["launched"] for row in mine) != launched or (
            dimension != "size" and sum(row["listed"] for row in mine) != listed
        ):
            wrong.append(dimension)
    expected = f"{listed} listed and {launched} launched servers in each"
    return AuditVerdict("adds_up", not wrong, f"wrong in: {', '.join(wrong) or 'none'}", expected)


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
