"""Listed contracts: tools that a marketplace shows and no launch has confirmed.

    tools shown -> contracts -> scan -> comparison with the launched server -> rows of LISTED

A tool confirmed by a launch has no row: its launched contract replaces it. A tool that the launch
reports differently, or not at all, has a row that says how. `read_unverified` returns the only
rows a search may show, with their mark; no other module reads this table (a test checks it).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from assets.columns import LISTING_ID, MARKETPLACE
from assets.contracts.canonical import DIGEST_PREFIX, FIELDS, index_contracts
from assets.contracts.findings import FINDINGS
from assets.contracts.quarantined_tools import Decision, DecisionIndex, read_decisions
from assets.contracts.scan import HIGH, scan_each
from assets.contracts.scan.engine import digest_rules
from assets.contracts.snapshot import SNAPSHOTS, format_date
from assets.contracts.tool_diff import compare_tools
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Row
from warehouse.storage.digest import canonical_json, digest, sha256
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

UNVERIFIED = "unverified"  # nobody launched its server; also the mark that a search shows
HELD = "held"  # a scan or a person keeps it out; its text is not in the row
DIFFERS = "differs"  # its server was launched and lists the tool otherwise
ABSENT = "absent"  # its server was launched and does not list it
STANDINGS = (UNVERIFIED, HELD, DIFFERS, ABSENT)

LISTED = TableSpec(
    name="listed_contracts",
    key=("listing_id", "tool"),
    columns={
        "listing_id": LISTING_ID,
        "marketplace": MARKETPLACE,
        "server_id": (
            pl.String,
            'Server id of a launch; "listing:<id>" where nothing names a server',
        ),
        "tool": (pl.String, "Name that the marketplace shows"),
        "contract_digest": (pl.String, 'Digest of the listed tool: "c1:<sha256>"'),
        "contract": (pl.String, "Canonical JSON of the contract; null where it is quarantined"),
        "shown": (pl.String, "Fields that are shown, as a JSON list; others are filled in"),
        "standing": (pl.String, f"one of {', '.join(STANDINGS)}"),
        "rules": (pl.String, "Scan rules that quarantine it, as a JSON list"),
        "scan_key": (pl.String, "Digest of everything that these rules depend on"),
        "launched_digest": (pl.String, "Digest of the contract from a launch; null where none"),
        "listed_differs": (
            pl.String,
            "Difference from listed to launched: JSON {cls, fields, why}",
        ),
        "first_seen": (
            pl.String,
            "UTC date on which this contract was first listed by a marketplace",
        ),
    },
)


Contract = dict[str, Any]
Launched = Mapping[str, Mapping[str, str]]  # server id -> tool -> its contract as JSON

_ANYTHING = {"type": "object"}  # the input schema of a tool of which none is shown


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
    """Rows of LISTED, and what has none: tools that a launch confirmed, entries without a usable
    contract, listings that nobody foresaw to be unreadable."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    confirmed: int = 0
    malformed: int = 0
    unread: int = 0


def build_listed(
    listings: Iterable[ShownListing],
    launched: Launched,
    decided: Iterable[Decision],
    previous: Iterable[Row],
    now: float,
) -> ListedContracts:
    """Rows of LISTED of this run. launched: every server that ever listed its tools to us, one that
    listed none included; previous: the rows of the last run; now: epoch seconds."""
    before: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in previous:
        before[row["listing_id"]][row["tool"]] = row
    decisions, out = DecisionIndex(decided), ListedContracts()
    for listing in listings:
        last = before[listing.listing_id]
        build = partial(_build_listing, listing, launched, decisions, last, now)
        result = try_item(build, lambda _: ListedContracts(unread=1))
        out.rows += result.rows
        out.confirmed += result.confirmed
        out.malformed += result.malformed
        out.unread += result.unread
    out.rows.sort(key=lambda row: (row["listing_id"], row["tool"]))
    return out


def read_shown(tool: JsonObject) -> tuple[Contract, tuple[str, ...]]:
    """(the tool with an input schema, the fields that are shown). A schema that names no property
    says nothing: marketplaces write `{}` for one they do not know."""
    schema = tool.get("inputSchema")
    stated = isinstance(schema, Mapping) and bool(schema.keys() - {"type", "$schema"})
    shown_fields = [name for name in FIELDS if tool.get(name) is not None and name != "inputSchema"]
    filled = {**tool, "inputSchema": schema if stated else _ANYTHING}
    return filled, tuple(sorted([*shown_fields, *(["inputSchema"] if stated else [])]))


def _build_listing(
    listing: ShownListing,
    launched: Launched,
    decided: DecisionIndex,
    before: Mapping[str, Row],
    now: float,
) -> ListedContracts:
    filled = [read_shown(tool) for tool in listing.tools]
    contracts, problems = index_contracts([tool for tool, _ in filled])
    field_names = [names for place, (_, names) in enumerate(filled) if place not in problems]
    fields = dict(zip(contracts, field_names, strict=True))
    servers = sorted({listing.server_id, *listing.aliases} & launched.keys())
    ran = [launched[server] for server in servers]
    scanned = {} if ran else _scan_contracts(contracts, decided, before)
    out = ListedContracts(malformed=len(problems))
    for name, contract in contracts.items():
        standing = _compare_launched(contract, fields[name], ran) if ran else scanned[name]
        if standing is None:
            out.confirmed += 1
            continue
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
                "contract": None if standing["standing"] == HELD else text.decode(),
                "shown": json.dumps(list(fields[name])),
                "first_seen": last["first_seen"] if same and last else format_date(now),
                **standing,
            }
        )
    return out


def _compare_launched(
    contract: Contract, shown_fields: Iterable[str], ran: Sequence[Mapping[str, str]]
) -> dict[str, Any] | None:
    """How the launched contracts differ from a listed one; None where one of them confirms what is
    shown."""
    name, differs = contract["name"], None
    for tools in ran:
        if name not in tools:
            continue
        launched = json.loads(tools[name])
        visible = {field: contract[field] for field in shown_fields if field in contract}
        changes = compare_tools([{**launched, **visible}], [launched])
        if not changes:
            return None
        change = changes[0]
        facts = {"cls": change.cls, "fields": list(change.fields), "why": change.why}
        differs = differs or {
            "standing": DIFFERS,
            "launched_digest": DIGEST_PREFIX + digest(launched),
            "listed_differs": canonical_json(facts).decode(),
        }
    return differs or {"standing": ABSENT}


def _scan_contracts(
    contracts: Mapping[str, Contract], decided: DecisionIndex, before: Mapping[str, Row]
) -> dict[str, dict[str, Any]]:
    """Tool -> {standing, rules, scan_key} of each contract of one listing. The list is scanned
    again where one of its contracts or the rules changed."""
    digests = {name: DIGEST_PREFIX + digest(body) for name, body in contracts.items()}
    key = digest([digest_rules(), sorted(digests.values())])
    last = [before[name] for name in contracts if name in before]
    if len(last) == len(contracts) and all(row["scan_key"] == key for row in last):
        rules = {row["tool"]: set(json.loads(row["rules"])) for row in last}
    else:
        each = zip(contracts, scan_each(list(contracts.values())), strict=True)
        rules = {name: {f.rule for f in findings if f.severity == HIGH} for name, findings in each}
    return {
        name: {
            "standing": UNVERIFIED if decided.is_clear(body_digest, rules[name]) else HELD,
            "rules": json.dumps(sorted(rules[name])),
            "scan_key": key,
        }
        for name, body_digest in digests.items()
    }


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
