"""A refresh: all that was observed read and weighed anew, and the overlay that follows from it."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import polars as pl

from assets.catalogue.catalogue import CATALOGUE, map_descriptions
from assets.catalogue.categories import find_category
from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR
from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.features import describe_tool, parse_contract
from assets.outcomes.reliability.measure import Known, Measured, measure_tools
from assets.outcomes.reliability.overlay import write_overlay
from assets.outcomes.reliability.policy import ReliabilityPolicy
from assets.outcomes.reliability.priors import ToolFacts
from assets.outcomes.reliability.sources.decisions import find_excluded, read_source_decisions
from assets.outcomes.reliability.sources.executed_calls import read_executed
from assets.outcomes.reliability.sources.logged_calls import read_logged
from assets.outcomes.reliability.sources.trust import KNOWN, Weighed, weigh_observations
from assets.outcomes.reliability.versions import read_changes
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.vectors.confusable_table import CONFUSABLES
from warehouse.json_types import Row
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse

_ALIKE = 8  # look-alikes of a tool that its prior looks at, the nearest


@dataclass(frozen=True)
class Refreshed:
    """measured: the rows. sources: source -> observations that count. left_out: why others count
    nothing, or less -> how many."""

    measured: Measured
    sources: dict[str, int]
    left_out: dict[str, int]
    at: float


def measure_home(warehouse: Warehouse, policy: ReliabilityPolicy) -> Refreshed:
    """What is known of every tool now. Raises SourceDecisionError."""
    now, tables = time.time(), warehouse.tables
    rows = read_listed(tables)
    weighed = read_weighed(warehouse, rows, policy, now)
    counts = weighed.frame.group_by("source").len().sort("source")
    found = measure_tools(weighed.frame, read_known(tables, rows), policy, now)
    return Refreshed(found, dict(counts.iter_rows()), weighed.left_out, now)


def read_weighed(
    warehouse: Warehouse, contracts: Iterable[Row], policy: ReliabilityPolicy, now: float
) -> Weighed:
    """Every observation of a known contract, and what it counts. Raises SourceDecisionError."""
    tables = warehouse.tables
    excluded = find_excluded(read_source_decisions(warehouse.home))
    logged = read_logged(warehouse.home, policy.claims)
    known = list_versions(contracts, tables.read(CHANGES).to_dicts())
    frame = pl.concat([read_executed(tables), logged.frame])
    weighed = weigh_observations(frame, known, policy, excluded, now)
    return Weighed(weighed.frame, {**logged.left_out, **weighed.left_out})


def update_overlay(warehouse: Warehouse, policy: ReliabilityPolicy) -> Refreshed:
    """`measure_home`, told to the router at once; the table follows when its asset is made.
    Raises SourceDecisionError."""
    found = measure_home(warehouse, policy)
    write_overlay(warehouse.home, found.measured.rows, found.measured.overall, found.at)
    return found


def list_versions(contracts: Iterable[Row], changes: Iterable[Row]) -> pl.DataFrame:
    """Rows of KNOWN: of every version listed now, and those before as far as is known."""
    found: dict[tuple[str, str], float] = {}

    def note(tool_id: str, digest: str, day: str | None) -> None:
        key, at = (tool_id, digest), _read_day(day)
        found[key] = min(found.get(key, at), at)

    for row in contracts:
        note(str(ToolId.of_row(row)), row["contract_digest"], row["first_seen"])
    for row in changes:
        tool_id = str(ToolId.of_row(row))
        if row["to_digest"]:
            note(tool_id, row["to_digest"], row["run_date"])
        if row["from_digest"]:
            old = str(ToolId(row["server_id"], row["renamed_from"] or row["tool"]))
            note(old, row["from_digest"], None)
    rows = [(*version, at) for version, at in found.items()]
    return pl.DataFrame(rows, schema=KNOWN, orient="row")


def _read_day(day: str | None) -> float:
    """Epoch seconds at which a UTC date begins; 0 for none."""
    try:
        read = date.fromisoformat(day) if day else None
    except ValueError:
        read = None
    return datetime(read.year, read.month, read.day, tzinfo=UTC).timestamp() if read else 0.0


def read_known(tables: Tables, contracts: Iterable[Row]) -> Known:
    """What the tables know of the tools listed now, without any call."""
    rows = {str(ToolId.of_row(row)): row for row in contracts}
    about = map_descriptions(tables.read(CATALOGUE).to_dicts())
    launches = {row["server_id"]: row for row in tables.read(DEPLOYMENTS).to_dicts()}
    servers = {row["server_id"] for row in rows.values()}
    categories = {name: find_category(about.get(name, ""), name) for name in servers}
    alike = find_alike(tables.read(CONFUSABLES).to_dicts())
    tools = [
        ToolFacts(
            tool_id,
            row["server_id"],
            categories[row["server_id"]],
            describe_tool(parse_contract(row["contract"]), launches.get(row["server_id"])),
            alike.get(tool_id, ()),
        )
        for tool_id, row in sorted(rows.items())
    ]
    current = {tool_id: row["contract_digest"] for tool_id, row in rows.items()}
    return Known(tools, current, read_changes(tables.read(CHANGES).to_dicts()))


def find_alike(confusables: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """Tool id -> ids of the nearest tools that look like it, on other servers."""
    near: dict[str, dict[str, float]] = defaultdict(dict)
    for row in confusables:
        if row["server_id"] != row["other_server_id"]:
            one = str(ToolId.of_row(row))
            other = str(ToolId(row["other_server_id"], row["other_tool"]))
            near[one][other] = near[other][one] = row["cosine"] or 0.0
    return {
        name: tuple(sorted(held, key=lambda other: (-held[other], other))[:_ALIKE])
        for name, held in near.items()
    }


def read_listed(tables: Tables) -> Sequence[Row]:
    """One row a tool: of a server that two marketplaces list, the one that an index holds."""
    columns = ["server_id", "tool", "marketplace", "contract_digest", "contract", "first_seen"]
    held = tables.read(CLEAR).select(columns).sort(columns[:4])
    return held.unique(["server_id", "tool"], keep="first", maintain_order=True).to_dicts()
