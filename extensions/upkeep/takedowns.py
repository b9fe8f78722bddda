"""What a name reaches: of a server its listings and aliases, of a tool its contracts."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from assets.catalogue.catalogue import CATALOGUE, read_listing_ids
from assets.contracts.listed_contracts import LISTED
from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.tool_id import BadToolId, ToolId
from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.recipes.recipe import identify_server
from orchestration.tool_blocks import block_tools
from warehouse.errors import UnusableInput
from warehouse.item_failure import try_item
from warehouse.storage.takedowns import (
    LIFTED,
    SERVER,
    TAKEN,
    TOOL,
    Tombstone,
    find_active,
    record_tombstone,
)
from warehouse.store import Warehouse

Reach = dict[str, Any]


def find_tool(warehouse: Warehouse, name: str) -> list[tuple[str, str]]:
    """The tool that a name is the id of, under each alias of its server; [] for a server's."""
    try:
        server, tool = ToolId.parse(name)
    except BadToolId:
        return []
    listed = warehouse.tables.read(SNAPSHOTS).select("server_id", "tool").unique().rows()
    if (server, tool) not in listed:
        return []
    return sorted((aliase, tool) for aliase in {server, *_find_aliases(warehouse, server)[0]})


def _find_aliases(warehouse: Warehouse, name: str) -> tuple[set[str], set[str]]:
    """(server ids, listing ids) of catalogue rows with a server or listing of this name."""
    servers, listings = set[str](), set[str]()
    for row in warehouse.tables.read(CATALOGUE).to_dicts():
        listed = set(read_listing_ids(row))
        if name in (row["server_ids"] or ()) or name.removeprefix("listing:") in listed:
            servers |= set(row["server_ids"] or ())
            listings |= listed
    return servers, listings


def collect_server_reach(warehouse: Warehouse, name: str) -> Reach | None:
    """A server by its id or a listing's, with its aliases; None where nothing of it is known."""
    servers, listings = _find_aliases(warehouse, name)
    known = [warehouse.tables.read(table) for table in (LISTINGS, DEPLOYMENTS, LISTED)]
    ids = {null for frame in known for null in frame["listing_id"].drop_nulls()}
    if name in ids:
        listings.add(name)
    else:
        servers.add(name)
    launched = known[1].filter(pl.col("listing_id").is_in(list(listings)))
    servers |= set(launched["server_id"])
    listings |= find_listings(warehouse, servers)
    servers |= {f"listing:{listing}" for listing in listings}
    names = {name for frame in known[1:] for name in frame["server_id"].drop_nulls()}
    if not listings and name not in names and not _find_digests(warehouse, servers):
        return None
    reach = {"servers": sorted(servers), "listings": sorted(listings)}
    return {**reach, "shown": sorted(_find_digests(warehouse, servers))}


def find_listings(warehouse: Warehouse, servers: Iterable[str]) -> set[str]:
    wanted = set(servers)
    rows = warehouse.tables.read(DEPLOYMENTS).filter(pl.col("server_id").is_in(list(wanted)))
    ours = {
        listing.listing_id
        for listing in read_rows(warehouse.tables.read(LISTINGS).to_dicts())
        if try_item(partial(identify_server, listing), lambda _: None) in wanted
    }
    return {*rows["listing_id"].drop_nulls(), *ours}


def collect_tool_reach(warehouse: Warehouse, tools: list[tuple[str, str]]) -> Reach:
    """Tools, with the contracts that none but they have."""
    own, others = set[str](), set[str]()
    for frame in _iterate_snapshots(warehouse):
        for server, tool, digest in frame.select("server_id", "tool", "contract_digest").rows():
            (own if (server, tool) in tools else others).add(digest)
    return {"tools": [list(tool) for tool in tools], "shown": sorted(own - others)}


def _find_digests(warehouse: Warehouse, servers: Iterable[str]) -> set[str]:
    wanted, own, others = set(servers), set[str](), set[str]()
    for frame in _iterate_snapshots(warehouse):
        for server, digest in frame.select("server_id", "contract_digest").unique().rows():
            (own if server in wanted else others).add(digest)
    return own - others


def _iterate_snapshots(warehouse: Warehouse) -> Iterator[pl.DataFrame]:
    tables = warehouse.tables
    for market in tables.partitions(SNAPSHOTS.name):
        moments = {head.digest: head.at for head in tables.history(SNAPSHOTS.name, market)}
        for at in moments.values():
            yield tables.read(SNAPSHOTS, market, as_of=at)


class BadTakedown(UnusableInput):
    """A take-down that cannot be made: the message names the part and the fix."""


def take_down(warehouse: Warehouse, name: str, by: str, why: str) -> dict[str, Any]:
    """Takes down a server or tool (`server::tool`). Raises BadTakedown, TakedownError."""
    for item in find_active(warehouse.home).values():
        reach = json.loads(item.reach)
        if name in (item.name, *reach.get("servers", ()), *reach.get("listings", ())):
            return _write(warehouse, item)
    tools = find_tool(warehouse, name)
    reach = collect_tool_reach(warehouse, tools) if tools else collect_server_reach(warehouse, name)
    if reach is None:
        raise BadTakedown(
            f"{name[:200]!r}: no server, listing or tool of this id is known here; give an id as"
            " the catalogue, `toolmill quarantine` or a search prints it"
        )
    return _write(warehouse, _make(name, TOOL if tools else SERVER, by, why, reach))


def renew_takedowns(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Has every tombstone reach what came since it was set, and blocks it in what is served:
    after a kill, a restore, or a new listing of a server that was taken down."""
    return [_write(warehouse, item) for item in find_active(warehouse.home).values()]


def lift_takedown(warehouse: Warehouse, name: str, by: str, why: str) -> dict[str, Any]:
    """Lifts one: what versions and blobs still hold is read again. Raises BadTakedown."""
    active = find_active(warehouse.home)
    if name not in active:
        known = ", ".join(sorted(active)) or "nothing"
        raise BadTakedown(f"{name[:200]!r} is not taken down; what is: {known}")
    lifted = replace(active[name], verdict=LIFTED, by=by, at=_format_now(), why=why)
    record_tombstone(warehouse.home, lifted)
    return describe_tombstone(lifted, block_tools(warehouse))


def describe_tombstone(one: Tombstone, blocked: int | None = None) -> dict[str, Any]:
    """{name, kind, verdict, by, at, why, servers, reach: counts, blocked}; no fingerprint."""
    reach = json.loads(one.reach)
    counts = {part: len(of) for part, of in reach.items() if isinstance(of, list)}
    shown = {name: getattr(one, name) for name in ("name", "kind", "verdict", "by", "at", "why")}
    shown["servers"] = reach.get("servers", [])
    return {**shown, "reach": counts, **({} if blocked is None else {"blocked": blocked})}


def _write(warehouse: Warehouse, one: Tombstone) -> dict[str, Any]:
    """Records a tombstone with all that it reaches now, unless the record has it so, and blocks
    that in what is served: the same again makes up for a kill in between."""
    reach = json.loads(one.reach)
    if one.kind == SERVER:
        now = find_listings(warehouse, reach["servers"])
        reach["listings"] = sorted({*reach.get("listings", ()), *now})
    tombstone = replace(one, reach=json.dumps(reach, sort_keys=True))
    if find_active(warehouse.home).get(one.name) != tombstone:
        record_tombstone(warehouse.home, tombstone)
    return describe_tombstone(tombstone, block_tools(warehouse))


def _make(name: str, kind: str, by: str, why: str, reach: Reach) -> Tombstone:
    for option, text in (("--by", by), ("--why", why)):
        if not text.strip():
            raise BadTakedown(f"{option} is empty, expected a text")
    return Tombstone(name, kind, TAKEN, by, _format_now(), why, json.dumps(reach, sort_keys=True))


def _format_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
