"""Asset definition of `listed_contracts`."""

import json
import time as clock
from collections import Counter, defaultdict
from collections.abc import Iterator

import dagster as dg
import polars as pl

from assets.catalogue.catalogue import CATALOGUE, read_listing_ids
from assets.contracts import report
from assets.contracts.history.snapshot import SNAPSHOTS
from assets.contracts.listed.build import Shown, build_listed
from assets.contracts.listed.table import LISTED, STANDINGS
from assets.contracts.quarantine.decisions import read_decisions
from assets.marketplaces.listing import load_tools, read_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.recipes.recipe import identify_server
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.item_failure import try_item
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.store import Warehouse

Aliases = defaultdict[str, tuple[frozenset[str], frozenset[str]]]

LISTED_AUDIT = audit_table(
    LISTED,
    [
        expect_unique(*LISTED.key),
        expect_match("contract_digest", "^c1:[0-9a-f]{64}$"),
        expect_one_of("standing", list(STANDINGS)),
    ],
    rules=["none_launched"],
)


@dg.asset(
    **describe_asset(LISTED_AUDIT, "assets/contracts/listed"),
    deps=["listings", "snapshots", "catalogue"],
    group_name="contracts",
    description="Tools that marketplaces show and no launch has confirmed: unverified, and no part"
    " of what is trained or called.",
)
def listed_contracts(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
) -> Published:
    previous = warehouse.tables.read(LISTED).to_dicts()
    launched = _read_launched(warehouse)
    decided = read_decisions(warehouse.home)
    aliases = _read_aliases(warehouse)
    shown = _iterate_shown(warehouse, aliases)
    made = build_listed(shown, launched, decided, previous, clock.time())
    slipped = [
        row
        for row in made.rows
        if row["server_id"] in launched and row["standing"] not in ("differs", "absent")
    ]
    yield from publish(
        context,
        warehouse,
        LISTED_AUDIT,
        LISTED.frame(made.rows),
        rules=[Verdict("none_launched", not slipped, f"{len(slipped)} of servers that ran")],
        metadata={
            **Counter(str(row["standing"]) for row in made.rows),
            "confirmed": made.confirmed,
            "malformed": made.malformed,
            "unread": made.unread,
            "listed_differs": _render_differences(made.rows),
        },
    )


def _read_aliases(warehouse: Warehouse) -> Aliases:
    """Listing id -> (the listings of its server, their server ids)."""
    found: Aliases = defaultdict(lambda: (frozenset(), frozenset()))
    for row in warehouse.tables.read(CATALOGUE).filter(pl.col("gone").is_null()).to_dicts():
        names = frozenset(read_listing_ids(row))
        for name in names:
            found[name] = (names, frozenset(row["server_ids"] or ()))
    return found


def _iterate_shown(warehouse: Warehouse, aliases: Aliases) -> Iterator[Shown]:
    """What each listing shows, with the ids of its server's other listings."""
    rows = warehouse.tables.read(LISTINGS).filter(pl.col("tools_blob").is_not_null())
    for row in rows.iter_rows(named=True):
        name, blob = row["listing_id"], row["tools_blob"]
        server = try_item(lambda row=row: identify_server(read_row(row)), lambda _: None)
        tools = try_item(
            lambda blob=blob: load_tools(warehouse.blobs.get(blob)), lambda _: list[dict]()
        )
        server = server or f"listing:{name}"
        yield Shown(name, row["marketplace"], server, tools, aliases[name][1])


def _read_launched(warehouse: Warehouse) -> dict[str, dict[str, str]]:
    """Every server that listed its tools to a launch, one that listed none included."""
    ran = warehouse.tables.read(DEPLOYMENTS).filter(status="ok")["server_id"]
    found: dict[str, dict[str, str]] = {server: {} for server in ran}
    columns = ["server_id", "tool", "contract"]
    for server, tool, contract in warehouse.tables.read(SNAPSHOTS).select(columns).iter_rows():
        found.setdefault(server, {})[tool] = contract
    return found


def _render_differences(rows: list[dict]) -> Markdown:
    """The first tools that a launch gave otherwise than they are listed."""
    lines = []
    for row in rows:
        if row.get("listed_differs"):
            difference = json.loads(row["listed_differs"])
            lines.append([row["tool"], difference["cls"], difference["why"], row["listing_id"]])
    return make_markdown_table(["tool", "class", "why", "listing"], lines[: report.SHOWN])
