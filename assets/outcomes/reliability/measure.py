"""The reliability of every version of a tool, from all that was seen: the rows of the table."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from assets.contracts.tool_id import BadToolId, ToolId
from assets.outcomes.reliability.estimate import Evidence, Prior, estimate_rate, unite_sources
from assets.outcomes.reliability.observation import WRONG_TOOL
from assets.outcomes.reliability.policy import ReliabilityPolicy
from assets.outcomes.reliability.priors import ToolFacts, build_priors
from assets.outcomes.reliability.versions import Change, Version, carry_evidence
from warehouse.json_types import Record

_DAY = 86_400
_KEYS = ["tool_id", "contract_digest"]
_PLACES = 4


@dataclass(frozen=True)
class Known:
    """What is known of tools without any call. current: tool id -> the contract listed now.
    changes: version -> its predecessor."""

    tools: Sequence[ToolFacts]
    current: Mapping[str, str]
    changes: Mapping[Version, Change] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """rows: of RELIABILITY. overall: the rate of all tools, which one that nothing is known of is
    expected to have."""

    rows: list[Record]
    overall: float


def measure_tools(
    frame: pl.DataFrame, known: Known, policy: ReliabilityPolicy, now: float
) -> Measured:
    """The rows of every current version, and of each older one that was called.

    frame: observations as `weigh_observations` leaves them, in any order. now: epoch seconds, which
    is read to the day: calls of one day are of one age, and rows of one day are the same.
    """
    counted = frame.filter(pl.col("kind").fill_null("") != WRONG_TOOL)
    seen = sum_evidence(counted, policy, now)
    belief = {
        version: seen.get(version, Evidence()) + carry_evidence(version, seen, known.changes)
        for version in {*seen, *known.current.items()}
    }
    held = {tool: belief[tool, digest] for tool, digest in known.current.items()}
    priors, overall = build_priors(known.tools, held)
    figures = _summarise_calls(counted)
    categories = {one.tool_id: one.category for one in known.tools}
    rows = []
    for version in sorted(belief):
        tool_id, digest = version
        try:
            server_id, tool = ToolId.parse(tool_id)
        except BadToolId:
            continue
        base = priors.get(tool_id, Prior(overall, 1.0))
        old = carry_evidence(version, seen, known.changes)
        prior = _add_belief(base, old)
        found = estimate_rate(seen.get(version, Evidence()), prior)
        change = known.changes.get(version)
        measured = {name: round(getattr(found, name), _PLACES) for name in ("mean", "low", "high")}
        rows.append(
            {
                "server_id": server_id,
                "tool": tool,
                "contract_digest": digest,
                "current": known.current.get(tool_id) == digest,
                "category": categories.get(tool_id, "other"),
                **measured,
                "n": round(found.n, 2),
                "prior": round(prior.mean, _PLACES),
                "carried": round(old.n, 2),
                "changed": change.cls if change else None,
                **figures.get(version, _NO_CALLS),
            }
        )
    return Measured(rows, overall)


def sum_evidence(
    frame: pl.DataFrame, policy: ReliabilityPolicy, now: float
) -> dict[Version, Evidence]:
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
    held: dict[Version, dict[str, Evidence]] = defaultdict(dict)
    for tool_id, digest, source, worked, failed in sums.iter_rows():
        held[tool_id, digest][source] = Evidence(worked, failed)
    return {version: unite_sources(own, policy.alone) for version, own in held.items()}


def _add_belief(base: Prior, old: Evidence) -> Prior:
    total = base.evidence + old
    return Prior(total.worked / total.n, total.n)


_NO_CALLS: Record = {
    "calls": 0,
    "failed": 0,
    "sources": 0,
    "failures": "{}",
    "p50_s": None,
    "p95_s": None,
    "last_at": None,
}


def _summarise_calls(frame: pl.DataFrame) -> dict[Version, Record]:
    """Version -> how many calls, how they failed and how long they took."""
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
    kinds = counted.filter(~pl.col("success")).group_by(*_KEYS, "kind").len()
    failures = _group_kinds(kinds.iter_rows())
    return {
        (row.pop("tool_id"), row.pop("contract_digest")): row
        | {"failures": json.dumps(failures.get((tool_id, digest), {}), sort_keys=True)}
        for row in totals.to_dicts()
        for tool_id, digest in [(row["tool_id"], row["contract_digest"])]
    }


def _group_kinds(rows: Iterable[tuple[str, str, str | None, int]]) -> dict[Version, dict[str, int]]:
    found: dict[Version, dict[str, int]] = defaultdict(dict)
    for tool_id, digest, kind, n in rows:
        found[tool_id, digest][kind or "unknown"] = n
    return found
