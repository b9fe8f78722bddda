"""The reliability of every version of a tool, from all that was seen: how its rate is estimated,
and the rows of the table."""

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import polars as pl

from assets.catalogue.catalogue import CATALOGUE, map_descriptions
from assets.catalogue.categories import find_category
from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR
from assets.contracts.tool_id import BadToolId, ToolId
from assets.outcomes.policy import EXECUTION, WRONG_TOOL, ReliabilityPolicy
from assets.outcomes.reliability.observations import (
    KNOWN_CONTRACTS,
    ObservedCalls,
    read_executed,
    read_logged,
    weigh_observations,
)
from warehouse.json_types import Record, Row
from warehouse.statistics import wilson_interval
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse


@dataclass(frozen=True)
class CallEvidence:
    """What calls count together: those that worked, and those that did not."""

    worked: float = 0.0
    failed: float = 0.0

    @property
    def n(self) -> float:
        return self.worked + self.failed

    def __add__(self, other: "CallEvidence") -> "CallEvidence":
        return CallEvidence(self.worked + other.worked, self.failed + other.failed)

    def scale(self, factor: float) -> "CallEvidence":
        return CallEvidence(self.worked * factor, self.failed * factor)

    def limit(self, most: float) -> "CallEvidence":
        """The same share of successes, of at most so many calls."""
        return self.scale(most / self.n) if self.n > most else self


@dataclass(frozen=True)
class RatePrior:
    """What is expected before any call: a share of successes, worth so many calls."""

    mean: float
    strength: float

    @property
    def evidence(self) -> CallEvidence:
        return CallEvidence(self.mean * self.strength, (1 - self.mean) * self.strength)


@dataclass(frozen=True)
class RateEstimate:
    """The share of calls that work, its 95% interval, and the calls seen that it rests on: decayed
    and weighed, so not a whole number; 0 where it is the prior's alone."""

    mean: float
    low: float
    high: float
    n: float


def estimate_rate(evidence: CallEvidence, prior: RatePrior) -> RateEstimate:
    """The posterior mean of the Beta distribution, with Wilson's interval of its counts."""
    total = evidence + prior.evidence
    low, high = wilson_interval(total.worked, total.n)
    mean = total.worked / total.n if total.n else 0.5
    return RateEstimate(mean, min(low, mean), max(high, mean), evidence.n)


def unite_sources(by_source: Mapping[str, CallEvidence], alone: float) -> CallEvidence:
    """All sources' evidence, no token above `alone` calls and all other sources together."""
    whole = sum(item.n for item in by_source.values())
    total = CallEvidence()
    for source in sorted(by_source):
        source_evidence = by_source[source]
        most = source_evidence.n if source == EXECUTION else max(alone, whole - source_evidence.n)
        total += source_evidence.limit(most)
    return total


STRENGTH = 4.0  # calls that a prior is worth
_SERVER = 5.0  # calls of a server that count as much as those of all tools
_MOST = 20.0  # calls of one tool that count for others: one busy tool is not its server


def build_priors(
    servers: Mapping[str, str], evidence: Mapping[str, CallEvidence]
) -> tuple[dict[str, RatePrior], float]:
    """(tool id -> its prior, the rate of all tools). servers: tool id -> server id; evidence: what
    calls of each tool count. A tool is expected to work as the others of its server do."""
    counts = {tool: evidence.get(tool, CallEvidence()).limit(_MOST) for tool in servers}
    whole = sum(counts.values(), CallEvidence())
    overall = (whole.worked + 1) / (whole.n + 2)
    by_server: dict[str, CallEvidence] = defaultdict(CallEvidence)
    for tool, server in servers.items():
        by_server[server] += counts[tool]
    priors = {}
    for tool, server in servers.items():
        others = by_server[server] + counts[tool].scale(-1)
        # 0..1 whatever rounding left of a difference.
        worked, n = max(others.worked, 0.0), max(others.n, 0.0)
        mean = min((worked + _SERVER * overall) / (n + _SERVER), 1.0)
        priors[tool] = RatePrior(mean, STRENGTH)
    return priors, overall


ToolVersion = tuple[str, str]  # tool id, contract digest

# What a call of the version before counts for the next one, by the class of the change. Other words
# leave the code alone, mostly; a contract whose calls break is another tool's.
CARRIED = {"wording": 0.8, "compatible": 0.5, "breaking": 0.1, "suspicious": 0.0}
MOST_CARRIED = 20.0  # calls; 20 calls of its own outweigh whatever was believed of a new version


@dataclass(frozen=True)
class VersionChange:
    """A version's predecessor, and the class of the change between them."""

    before: ToolVersion
    cls: str


def read_changes(rows: Iterable[Row]) -> dict[ToolVersion, VersionChange]:
    """Version -> its last change to it, of rows of CHANGES."""
    result: dict[ToolVersion, VersionChange] = {}
    for row in sorted(rows, key=lambda row: (row["run_date"], row["from_digest"])):
        if row["from_digest"] and row["to_digest"]:
            now = str(ToolId(row["server_id"], row["tool"])), row["to_digest"]
            old = str(ToolId(row["server_id"], row["renamed_from"] or row["tool"]))
            if (before := (old, row["from_digest"])) != now:
                result[now] = VersionChange(before, row["cls"])
    return result


def carry_evidence(
    version: ToolVersion,
    evidence: Mapping[ToolVersion, CallEvidence],
    changes: Mapping[ToolVersion, VersionChange],
) -> CallEvidence:
    """What the versions before this one count for it, at most MOST_CARRIED calls."""
    total, factor, met = CallEvidence(), 1.0, {version}
    while (change := changes.get(version)) is not None and change.before not in met:
        factor *= CARRIED.get(change.cls, 0.0)
        version = change.before
        met.add(version)
        total += evidence.get(version, CallEvidence()).scale(factor)
    return total.limit(MOST_CARRIED)


_DAY = 86_400
_KEYS = ["tool_id", "contract_digest"]
_PLACES = 4


@dataclass(frozen=True)
class ListedTool:
    """A tool that is listed now. category: of its server."""

    server_id: str
    contract_digest: str
    category: str


@dataclass(frozen=True)
class ToolKnowledge:
    """What is known without any call. tools: by tool id; changes: version -> predecessor."""

    tools: Mapping[str, ListedTool]
    changes: Mapping[ToolVersion, VersionChange] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredReliability:
    """rows: of RELIABILITY. overall: the rate of all tools."""

    rows: list[Record]
    overall: float


def measure_tools(
    frame: pl.DataFrame, knowledge: ToolKnowledge, policy: ReliabilityPolicy, now: float
) -> MeasuredReliability:
    """The rows of every current version, and of each older one that was called. frame: as
    `weigh_observations` leaves it; now: epoch seconds, read to the day."""
    counted = frame.filter(pl.col("kind").fill_null("") != WRONG_TOOL)
    evidence = sum_evidence(counted, policy, now)
    current = {name: tool.contract_digest for name, tool in knowledge.tools.items()}
    belief = {
        version: evidence.get(version, CallEvidence())
        + carry_evidence(version, evidence, knowledge.changes)
        for version in {*evidence, *current.items()}
    }
    servers = {name: tool.server_id for name, tool in knowledge.tools.items()}
    priors, overall = build_priors(servers, {name: belief[name, current[name]] for name in servers})
    figures = _summarise_calls(counted)
    rows = []
    for version in sorted(belief):
        tool_id, digest = version
        try:
            server_id, tool = ToolId.parse(tool_id)
        except BadToolId:
            continue
        old = carry_evidence(version, evidence, knowledge.changes)
        total = priors.get(tool_id, RatePrior(overall, 1.0)).evidence + old
        prior = RatePrior(total.worked / total.n, total.n)
        estimate = estimate_rate(evidence.get(version, CallEvidence()), prior)
        change = knowledge.changes.get(version)
        measured = {
            name: round(getattr(estimate, name), _PLACES) for name in ("mean", "low", "high")
        }
        rows.append(
            {
                "server_id": server_id,
                "tool": tool,
                "contract_digest": digest,
                "current": current.get(tool_id) == digest,
                "category": knowledge.tools[tool_id].category if tool_id in current else "other",
                **measured,
                "n": round(estimate.n, 2),
                "prior": round(prior.mean, _PLACES),
                "carried": round(old.n, 2),
                "changed": change.cls if change else None,
                **figures.get(version, _NO_CALLS),
            }
        )
    return MeasuredReliability(rows, overall)


def sum_evidence(
    frame: pl.DataFrame, policy: ReliabilityPolicy, now: float
) -> dict[ToolVersion, CallEvidence]:
    """Version -> what its calls count, by their weight and age."""
    age = (math.floor(now / _DAY) - (pl.col("at") / _DAY).floor()).clip(lower_bound=0)
    weight = pl.col("weight") * (0.5 ** (age / policy.half_life_days))
    sums = (
        frame.select(*_KEYS, "source", "success", weight=weight)
        .group_by(*_KEYS, "source")
        .agg(
            worked=pl.col("weight").filter(pl.col("success")).sum(),
            failed=pl.col("weight").filter(~pl.col("success")).sum(),
        )
    )
    by_version: dict[ToolVersion, dict[str, CallEvidence]] = defaultdict(dict)
    for tool_id, digest, source, worked, failed in sums.iter_rows():
        by_version[tool_id, digest][source] = CallEvidence(worked, failed)
    return {
        version: unite_sources(sources, policy.alone) for version, sources in by_version.items()
    }


_NO_CALLS: Record = {
    **dict.fromkeys(("calls", "failed", "sources"), 0),
    "failures": "{}",
    **dict.fromkeys(("p50_s", "p95_s", "last_at")),
}


def _summarise_calls(frame: pl.DataFrame) -> dict[ToolVersion, Record]:
    counted = frame.filter(pl.col("weight") > 0)
    timed = pl.col("seconds").filter(pl.col("success") & pl.col("seconds").is_not_null())
    totals = counted.group_by(_KEYS).agg(
        calls=pl.len().cast(pl.Int64),
        failed=(~pl.col("success")).sum().cast(pl.Int64),
        sources=pl.col("source").n_unique().cast(pl.Int64),
        p50_s=timed.quantile(0.5, "linear").round(3),
        p95_s=timed.quantile(0.95, "linear").round(3),
        last_at=pl.col("at").max(),
    )
    failures: dict[ToolVersion, dict[str, int]] = defaultdict(dict)
    kinds = counted.filter(~pl.col("success")).group_by(*_KEYS, "kind").len()
    for tool_id, digest, kind, n in kinds.iter_rows():
        failures[tool_id, digest][kind or "unknown"] = n
    return {
        (row.pop("tool_id"), row.pop("contract_digest")): row
        | {"failures": json.dumps(failures.get((tool_id, digest), {}), sort_keys=True)}
        for row in totals.to_dicts()
        for tool_id, digest in [(row["tool_id"], row["contract_digest"])]
    }


@dataclass(frozen=True)
class ReliabilityRefresh:
    """sources: source -> observations that count. left_out: reason -> others."""

    measured: MeasuredReliability
    sources: dict[str, int]
    left_out: dict[str, int]
    at: float


def measure_home(warehouse: Warehouse, policy: ReliabilityPolicy) -> ReliabilityRefresh:
    """What is known of every tool now."""
    now, tables = time.time(), warehouse.tables
    rows = read_listed(tables)
    weighed = read_weighed(warehouse, rows, policy, now)
    counts = weighed.frame.group_by("source").len().sort("source")
    measured = measure_tools(weighed.frame, read_known(tables, rows), policy, now)
    return ReliabilityRefresh(measured, dict(counts.iter_rows()), weighed.left_out, now)


def read_weighed(
    warehouse: Warehouse, contracts: Iterable[Row], policy: ReliabilityPolicy, now: float
) -> ObservedCalls:
    """Every observation of a known contract, and what it counts."""
    tables = warehouse.tables
    logged = read_logged(warehouse.home, policy.claims)
    versions = list_versions(contracts, tables.read(CHANGES).to_dicts())
    frame = pl.concat([read_executed(tables), logged.frame])
    weighed = weigh_observations(frame, versions, policy, now)
    return ObservedCalls(weighed.frame, {**logged.left_out, **weighed.left_out})


def list_versions(contracts: Iterable[Row], changes: Iterable[Row]) -> pl.DataFrame:
    """Rows of KNOWN_CONTRACTS: of every version listed now, and those before as far as is known."""
    first_times: dict[tuple[str, str], float] = {}

    def note(tool_id: str, digest: str, day: str | None) -> None:
        key, at = (tool_id, digest), _read_day(day)
        first_times[key] = min(first_times.get(key, at), at)

    for row in contracts:
        note(str(ToolId.of_row(row)), row["contract_digest"], row["first_seen"])
    for row in changes:
        tool_id = str(ToolId.of_row(row))
        if row["to_digest"]:
            note(tool_id, row["to_digest"], row["run_date"])
        if row["from_digest"]:
            old = str(ToolId(row["server_id"], row["renamed_from"] or row["tool"]))
            note(old, row["from_digest"], None)
    rows = [(*version, at) for version, at in first_times.items()]
    return pl.DataFrame(rows, schema=KNOWN_CONTRACTS, orient="row")


def _read_day(day: str | None) -> float:
    try:
        read = date.fromisoformat(day) if day else None
    except ValueError:
        read = None
    return datetime(read.year, read.month, read.day, tzinfo=UTC).timestamp() if read else 0.0


def read_known(tables: Tables, contracts: Iterable[Row]) -> ToolKnowledge:
    """What the tables know of the tools listed now, without any call."""
    rows = {str(ToolId.of_row(row)): row for row in contracts}
    about = map_descriptions(tables.read(CATALOGUE).to_dicts())
    servers = {row["server_id"] for row in rows.values()}
    categories = {name: find_category(about.get(name, ""), name) for name in servers}
    tools = {
        tool_id: ListedTool(row["server_id"], row["contract_digest"], categories[row["server_id"]])
        for tool_id, row in sorted(rows.items())
    }
    return ToolKnowledge(tools, read_changes(tables.read(CHANGES).to_dicts()))


def read_listed(tables: Tables) -> Sequence[Row]:
    """One row a tool: of a server that two marketplaces list, the one that an index holds."""
    columns = ["server_id", "tool", "marketplace", "contract_digest", "first_seen"]
    rows = tables.read(CLEAR).select(columns).sort(columns[:4])
    return rows.unique(["server_id", "tool"], keep="first", maintain_order=True).to_dicts()
