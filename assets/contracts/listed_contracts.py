"""Listed contracts: tools that a marketplace shows of servers that nobody launched.

    tools shown -> contracts -> scan -> rows of LISTED

A server that was launched has no rows: its own contracts replace them. `read_unverified` returns
the only rows a search may show, with their mark; no other module reads this table (a test checks
it).
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from assets.columns import read_table_spec
from assets.contracts.canonical import DIGEST_PREFIX, index_contracts
from assets.contracts.findings import FINDINGS
from assets.contracts.quarantined_tools import Decision, DecisionIndex, read_decisions
from assets.contracts.scan import HIGH, scan_each
from assets.contracts.scan.engine import digest_rules
from assets.contracts.snapshot import SNAPSHOTS, format_date
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Row
from warehouse.storage.digest import canonical_json, digest, sha256
from warehouse.store import Warehouse

UNVERIFIED = "unverified"  # nobody launched its server; also the mark that a search shows
HELD = "held"  # a scan or a person keeps it out; its text is not in the row
STANDINGS = (UNVERIFIED, HELD)

LISTED = read_table_spec(__file__, "listed_contracts")


Contract = dict[str, Any]


@dataclass(frozen=True)
class ShownListing:
    """What one listing shows. server_id: of a launch of it; aliases: the ids of its server's other
    listings; tools: as the marketplace shows them."""

    listing_id: str
    marketplace: str
    server_id: str
    tools: Sequence[JsonObject]
    aliases: frozenset[str] = frozenset()


@dataclass
class ListedContracts:
    """Rows of LISTED, and what has none: entries without a usable contract, listings that nobody
    foresaw to be unreadable."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    malformed: int = 0
    unread: int = 0


def build_listed(
    listings: Iterable[ShownListing],
    launched: Collection[str],
    decided: Iterable[Decision],
    previous: Iterable[Row],
    now: float,
) -> ListedContracts:
    """Rows of LISTED of this run. launched: ids of every server that ever listed its tools to us,
    one that listed none included; previous: the rows of the last run; now: epoch seconds."""
    before: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in previous:
        before[row["listing_id"]][row["tool"]] = row
    decisions, out = DecisionIndex(decided), ListedContracts()
    for listing in listings:
        if not {listing.server_id, *listing.aliases}.isdisjoint(launched):
            continue
        last = before[listing.listing_id]
        build = partial(_build_listing, listing, decisions, last, now)
        result = try_item(build, lambda _: ListedContracts(unread=1))
        out.rows += result.rows
        out.malformed += result.malformed
        out.unread += result.unread
    out.rows.sort(key=lambda row: (row["listing_id"], row["tool"]))
    return out


def _build_listing(
    listing: ShownListing, decided: DecisionIndex, before: Mapping[str, Row], now: float
) -> ListedContracts:
    contracts, problems = index_contracts(map(_fill_schema, listing.tools))
    digests = {name: DIGEST_PREFIX + digest(body) for name, body in contracts.items()}
    key = digest([digest_rules(), sorted(digests.values())])
    last = [before[name] for name in contracts if name in before]
    if len(last) == len(contracts) and all(row["scan_key"] == key for row in last):
        rules = {row["tool"]: set(json.loads(row["rules"])) for row in last}
    else:
        each = zip(contracts, scan_each(list(contracts.values())), strict=True)
        rules = {name: {f.rule for f in findings if f.severity == HIGH} for name, findings in each}
    scanned = {
        name: {
            "standing": UNVERIFIED if decided.is_clear(body_digest, rules[name]) else HELD,
            "rules": json.dumps(sorted(rules[name])),
            "scan_key": key,
        }
        for name, body_digest in digests.items()
    }
    out = ListedContracts(malformed=len(problems))
    for name, contract in contracts.items():
        text, last = canonical_json(contract), before.get(name)
        contract_digest = DIGEST_PREFIX + sha256(text)
        same = last is not None and last["contract_digest"] == contract_digest
        out.rows.append(
            {
                "listing_id": listing.listing_id,
                "marketplace": listing.marketplace,
                "server_id": listing.server_id,
                "tool": name,
                "contract_digest": contract_digest,
                "contract": None if scanned[name]["standing"] == HELD else text.decode(),
                "first_seen": last["first_seen"] if same and last else format_date(now),
                **scanned[name],
            }
        )
    return out


def _fill_schema(tool: JsonObject) -> Contract:
    """The tool with an input schema. One that names no property says nothing: marketplaces write
    `{}` for a schema that they do not know."""
    schema = tool.get("inputSchema")
    stated = isinstance(schema, Mapping) and bool(schema.keys() - {"type", "$schema"})
    return {**tool, "inputSchema": schema if stated else {"type": "object"}}


def read_unverified(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Rows of LISTED that nobody launched and nothing holds: for a search that was asked to show
    them, with their mark, and for nothing else.

    A server that was launched since is left out, as is a contract that a person or a finding about
    the same contract elsewhere holds. Raises DecisionError when the record of decisions cannot be
    trusted.
    """
    tables = warehouse.tables
    launched = set(tables.read(SNAPSHOTS)["server_id"])
    blocked = DecisionIndex(read_decisions(warehouse.home)).find_held_digests()
    blocked |= set(tables.read(FINDINGS).filter(severity=HIGH)["contract_digest"])
    rows = tables.read(LISTED).filter(pl.col("standing") == UNVERIFIED).to_dicts()
    return [
        row
        for row in rows
        if row["server_id"] not in launched and row["contract_digest"] not in blocked
    ]
