"""Catalogue: one row per server, with all its listings; a listing that left its table is gone."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from assets.catalogue.identity import LEVELS, ServerGroup, group_listings
from assets.columns import read_table_spec
from assets.contracts.snapshot import format_date
from assets.marketplaces.listing import Listing
from assets.servers.recipes.recipe import identify_server
from warehouse.json_types import JsonObject, Record
from warehouse.storage.digest import canonical_json, digest
from warehouse.storage.tables import Tables, VersionGone

PRIVATE = "private"  # its texts are shown only where no other marketplace has the server

CATALOGUE = read_table_spec(__file__, "catalogue")

Contracts = Mapping[tuple[str, str], frozenset[str]]  # (marketplace, server_id) -> digests


def build_catalogue(
    listings: Iterable[Listing],
    snapshots: Iterable[JsonObject],
    previous: Iterable[JsonObject],
    now: float,
) -> list[Record]:
    """Rows of CATALOGUE. snapshots: of all marketplaces; previous: the last; now: epoch seconds."""
    run_date = format_date(now)
    contracts, names = _count_contracts(snapshots)
    rows = {}
    for listing in group_listings(listings):
        row = _build_row(listing, contracts, names)
        rows[row["catalogue_id"]] = row
    _carry_history(rows, list(previous), run_date)
    return [rows[name] for name in sorted(rows)]


def read_listing_ids(row: JsonObject) -> list[str]:
    """The listings that a row now holds."""
    return [item["listing_id"] for item in json.loads(row["listings"])]


def map_same_servers(rows: Iterable[JsonObject]) -> dict[str, frozenset[str]]:
    """Server id -> all ids of that server, itself included, by rows of CATALOGUE. An id in several
    rows, as of a gateway to many servers, names none of them and stands alone. A row that nobody
    lists any more says only what no listed one does."""
    result: dict[str, frozenset[str]] = {}
    current: list[set[str]] = []
    gone: list[set[str]] = []
    for row in rows:
        (current if row["gone"] is None else gone).append(set(row["server_ids"] or ()))
    for groups in (current, gone):
        groups = [names - result.keys() for names in groups]
        counts = Counter(name for names in groups for name in names)
        for names in groups:
            sole = frozenset(name for name in names if counts[name] == 1)
            result |= {name: sole if name in sole else frozenset({name}) for name in names}
    return result


def read_same_servers(tables: Tables, as_of: float) -> dict[str, frozenset[str]]:
    """`map_same_servers` at a time (epoch seconds); now, where retention took the catalogue of
    then: a join that was made or undone since is told as it is now, so that a server may stand in
    another split than it did."""
    try:
        frame = tables.read(CATALOGUE, as_of=as_of)
    except VersionGone:
        frame = tables.read(CATALOGUE)
    return map_same_servers(frame.to_dicts())


def map_descriptions(rows: Iterable[JsonObject]) -> dict[str, str]:
    """Server id -> the name and description that rows of CATALOGUE show for it."""
    return {
        server_id: f"{row['name'] or ''}\n{row['description'] or ''}".strip()
        for row in rows
        for server_id in row["server_ids"] or ()
    }


def _count_contracts(
    snapshots: Iterable[JsonObject],
) -> tuple[Contracts, dict[tuple[str, str], set[str]]]:
    digests: dict[tuple[str, str], set[str]] = defaultdict(set)
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in snapshots:
        key = (row["marketplace"], row["server_id"])
        digests[key].add(row["contract_digest"])
        names[key].add(row["tool"])
    return {key: frozenset(values) for key, values in digests.items()}, names


def _build_row(
    group: ServerGroup, contracts: Contracts, names: Mapping[tuple[str, str], set[str]]
) -> Record:
    members = group.members
    listings = [member.listing for member in members]
    # Once each: two rows of one marketplace share a launch.
    launches = {
        (listing.marketplace, name) for listing in listings if (name := identify_server(listing))
    }
    ran = sorted(launches & contracts.keys())
    sets = {contracts[key] for key in ran}
    joins = [member.joined_by for member in members if member.joined_by]
    chosen = min(
        listings,
        key=lambda listing: (
            listing.marketplace == PRIVATE,
            "deprecated" in listing.flags,
            not listing.runnable,
            not listing.description,
            listing.listing_id,
        ),
    )
    keys = [member.keys for member in members]
    return {
        "catalogue_id": group.catalogue_id,
        "identity": group.identity,
        "name": chosen.name,
        "description": chosen.description,
        "package": _pick_most_common(key.package for key in keys),
        "url": _pick_most_common(listing.url for listing in listings if listing.package is None),
        "repository": _pick_most_common(key.at("repository") for key in keys),
        "marketplaces": sorted({listing.marketplace for listing in listings}),
        "listings": _dump_json(
            [{"listing_id": m.listing.listing_id, "joined_by": m.joined_by} for m in members]
        ),
        "joined_by": max(joins, key=LEVELS.index) if joins else None,
        "server_ids": sorted({name for _, name in launches}),
        "runnable": any(listing.runnable for listing in listings),
        "flags": sorted({flag for listing in listings for flag in listing.flags}),
        "tools": len(set().union(*(names[key] for key in ran))) if ran else None,
        "contracts": digest(sorted(set().union(*sets))) if ran else None,
        "confirmed": len(sets) == 1 if len(ran) > 1 else None,
        "first_seen": None,
        "gone_from": "[]",
        "gone": None,
        "updated_at": max(
            (listing.updated_at for listing in listings if listing.updated_at), default=None
        ),
    }


def _pick_most_common(texts: Iterable[str | None]) -> str | None:
    counted = Counter(text for text in texts if text)
    return min(counted, key=lambda text: (-counted[text], text)) if counted else None


def _carry_history(rows: dict[str, Record], previous: list[JsonObject], run_date: str) -> None:
    """Carries first_seen and what is gone from the last catalogue into this run's rows."""
    holder = {name: key for key, row in sorted(rows.items()) for name in read_listing_ids(row)}
    for old in sorted(previous, key=lambda row: row["catalogue_id"]):
        gone = _read_gone(old)
        now_held = Counter(holder[name] for name in read_listing_ids(old) if name in holder)
        back = Counter(holder[name] for name in gone if name in holder)
        gone |= {name: run_date for name in read_listing_ids(old) if name not in holder}
        gone = {name: since for name, since in gone.items() if name not in holder}
        key = _find_successor(old, now_held or back, rows)
        if key is None:
            rows[old["catalogue_id"]] = {
                **old,
                "marketplaces": [],
                "listings": "[]",
                "joined_by": None,
                "runnable": False,
                "gone": old["gone"] or run_date,
                "gone_from": _dump_gone(gone),
            }
            continue
        row = rows[key]
        merged = _read_gone(row)
        for name, since in gone.items():
            merged[name] = min(since, merged.get(name, since))
        row["gone_from"] = _dump_gone(merged)
        row["first_seen"] = min(old["first_seen"], row["first_seen"] or run_date)
    for row in rows.values():
        row["first_seen"] = row["first_seen"] or run_date


def _find_successor(old: JsonObject, counts: Counter, rows: Mapping[str, Record]) -> str | None:
    """The row of this run that continues an old one: of its id, else with most of its listings."""
    if old["catalogue_id"] in rows and rows[old["catalogue_id"]]["gone"] is None:
        return old["catalogue_id"]
    return min(counts, key=lambda key: (-counts[key], key)) if counts else None


def _read_gone(row: JsonObject) -> dict[str, str]:
    return {item["listing_id"]: item["since"] for item in json.loads(row["gone_from"])}


def _dump_gone(gone: Mapping[str, str]) -> str:
    return _dump_json([{"listing_id": name, "since": gone[name]} for name in sorted(gone)])


def _dump_json(value: Any) -> str:
    return canonical_json(value).decode()
