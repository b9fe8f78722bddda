"""What a name reaches: of a server its listings and aliases, of a secret what holds it."""

from collections.abc import Iterable, Iterator, Sequence
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
from warehouse.item_failure import try_item
from warehouse.storage.blobs import BlobCorrupt, Blobs
from warehouse.storage.takedowns import Fingerprint
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
    aliases = {server, *_find_aliases(warehouse, server)[0]}
    return sorted((aliase, tool) for aliase in aliases)


def _find_aliases(warehouse: Warehouse, name: str) -> tuple[set[str], set[str]]:
    """(server ids, listing ids) of the catalogue's rows that have a server or a listing of this
    name."""
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
    """The listings that launch one of these servers, or did."""
    wanted = set(servers)
    rows = warehouse.tables.read(DEPLOYMENTS).filter(pl.col("server_id").is_in(list(wanted)))
    listings = read_rows(warehouse.tables.read(LISTINGS).to_dicts())
    ours = {
        listing.listing_id
        for listing in listings
        if try_item(partial(identify_server, listing), lambda _: None) in wanted
    }
    return {*rows["listing_id"].drop_nulls(), *ours}


def collect_tool_reach(warehouse: Warehouse, tools: list[tuple[str, str]]) -> Reach:
    """Tools, with the contracts that none but they have."""
    own, others = set[str](), set[str]()
    for frame in _iterate_snapshots(warehouse):
        for server, tool, digest in frame.select("server_id", "tool", "contract_digest").rows():
            (own if (server, tool) in tools else others).add(digest)
    return {"tools": [list(one) for one in tools], "shown": sorted(own - others)}


def _find_digests(warehouse: Warehouse, servers: Iterable[str]) -> set[str]:
    """The contracts that these servers list or listed, and no other one."""
    wanted, own, others = set(servers), set[str](), set[str]()
    for frame in _iterate_snapshots(warehouse):
        for server, digest in frame.select("server_id", "contract_digest").unique().rows():
            (own if server in wanted else others).add(digest)
    return own - others


def _iterate_snapshots(warehouse: Warehouse) -> Iterator[pl.DataFrame]:
    """Every version of the snapshots that can be read."""
    tables = warehouse.tables
    for market in tables.partitions(SNAPSHOTS.name):
        moments = {head.digest: head.at for head in tables.history(SNAPSHOTS.name, market)}
        for at in moments.values():
            yield tables.read(SNAPSHOTS, market, as_of=at)


def collect_secret_reach(warehouse: Warehouse, mark: Fingerprint) -> Reach:
    """The contracts and the blobs that hold a secret; the blobs are read one by one."""
    contracts = set[str]()
    for frame in _iterate_snapshots(warehouse):
        rows = frame.select("contract_digest", "contract").drop_nulls().unique()
        held = mark.find_holders(rows["contract"].to_list())
        contracts |= {rows["contract_digest"][at] for at in held}
    return {"contracts": sorted(contracts), "blobs": sorted(find_blobs(warehouse.blobs, [mark]))}


def find_blobs(blobs: Blobs, marks: Sequence[Fingerprint]) -> set[str]:
    """The blobs that hold one of these secrets."""
    held = set[str]()
    for path in blobs.list_files():
        try:
            data = blobs.get(path.name)
        except (KeyError, BlobCorrupt, OSError):
            continue  # what cannot be read shows nobody anything
        if any(mark.is_held_by(data) for mark in marks):
            held.add(path.name)
    return held
