"""Asset definition of `listed_contracts`."""

import json
import time as clock
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import dagster as dg
import polars as pl

from assets.catalogue.catalogue import CATALOGUE, read_listing_ids
from assets.contracts import report
from assets.contracts.history.snapshot import SNAPSHOTS
from assets.contracts.listed.build import Shown, build_listed
from assets.contracts.listed.table import LISTED, STANDINGS
from assets.contracts.quarantine.decisions import read_decisions
from assets.marketplaces.listed_tools import load_tools
from assets.marketplaces.listing import Listing, read_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.table import DEPLOYMENTS
from assets.servers.recipes.names import identify_server
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.item_failure import try_item
from warehouse.progress import Lines, Progress
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


class Readmes(Protocol):
    """What reads the tools of servers out of their READMEs, where a setting asks for it."""

    def list_tools(
        self, warehouse: Warehouse, listings: Sequence[Listing], progress: Progress | None = None
    ) -> tuple[Mapping[str, tuple[list[dict[str, Any]], str]], Mapping[str, int]]:
        """(listing id -> its tools and who read them; figures)."""
        ...


@dg.asset(
    **describe_asset(LISTED_AUDIT, "assets/contracts/listed"),
    deps=["listings", "snapshots", "catalogue"],
    group_name="contracts",
    description="Tools that marketplaces show, and by a setting READMEs, and no launch has"
    " confirmed: unverified, and no part of what is trained or called.",
)
def listed_contracts(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    readmes: dg.ResourceParam[Readmes],
) -> Published:
    previous = warehouse.tables.read(LISTED).to_dicts()
    launched = _read_launched(warehouse)
    decided = read_decisions(warehouse.home)
    aliases = _read_aliases(warehouse)
    silent = _list_silent(warehouse, aliases, launched)
    read, figures = readmes.list_tools(warehouse, silent, Lines(context.log.info))
    shown = chain(_iterate_shown(warehouse, aliases), _iterate_read(silent, read, aliases))
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
            **figures,
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


def _list_silent(
    warehouse: Warehouse, aliases: Aliases, launched: Mapping[str, Any]
) -> list[Listing]:
    """One listing of each server with a repository, of which no listing shows a tool and no launch
    listed any."""
    frame = warehouse.tables.read(LISTINGS)
    with_tools = set(frame.filter(pl.col("tools_blob").is_not_null())["listing_id"])
    rows = frame.filter(pl.col("tools_blob").is_null(), pl.col("repository").is_not_null())
    found: list[Listing] = []
    for row in rows.sort("listing_id").iter_rows(named=True):
        name = row["listing_id"]
        listing = try_item(lambda row=row: read_row(row), lambda _: None)
        if name in with_tools or listing is None:
            continue
        same, servers = aliases[name]
        if not (with_tools & same or launched.keys() & {*servers, identify_server(listing)}):
            found.append(listing)
        with_tools |= {name, *same}
    return found


def _iterate_read(
    silent: Sequence[Listing],
    read: Mapping[str, tuple[list[dict[str, Any]], str]],
    aliases: Aliases,
) -> Iterator[Shown]:
    """What READMEs name of the tools of servers that list none."""
    for one in silent:
        if one.listing_id in read:
            tools, provider = read[one.listing_id]
            server = identify_server(one) or f"listing:{one.listing_id}"
            servers = aliases[one.listing_id][1]
            yield Shown(one.listing_id, one.marketplace, server, tools, servers, provider)


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
