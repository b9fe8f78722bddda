"""How often a tool works, by what was seen of it: Beta-smoothed, decayed, with an interval."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import EXECUTION
from warehouse.json_types import Row
from warehouse.statistics import wilson_interval


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
    """The mean of the Beta distribution that the prior becomes by what was seen, with Wilson's
    interval of its counts."""
    total = evidence + prior.evidence
    low, high = wilson_interval(total.worked, total.n)
    mean = total.worked / total.n if total.n else 0.5
    return RateEstimate(mean, min(low, mean), max(high, mean), evidence.n)


def unite_sources(by_source: Mapping[str, CallEvidence], alone: float) -> CallEvidence:
    """All sources' evidence together. No token outweighs all other sources, unless these have fewer
    than `alone` calls: a flood is worth no more than what it has to drown out."""
    whole = sum(item.n for item in by_source.values())
    total = CallEvidence()
    for source in sorted(by_source):
        source_evidence = by_source[source]
        most = source_evidence.n if source == EXECUTION else max(alone, whole - source_evidence.n)
        total += source_evidence.limit(most)
    return total


FEATURES = (
    *("required", "optional", "described", "words", "output_schema", "read_only"),
    # Seconds and attempts of a launch differ from run to run: a run of an unchanged world moved the
    # table by them.
    "remote",
)
_RIDGE = 10.0  # a feature has to explain some tens of calls before it moves a prior
_STEPS = 12


def describe_tool(contract: Mapping[str, Any], launch: Row | None) -> list[float]:
    """The values of FEATURES. launch: the server's row of DEPLOYMENTS."""
    schema = contract.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    declared = schema.get("properties")
    properties = declared if isinstance(declared, dict) else {}
    required = schema.get("required")
    needed = len(required) if isinstance(required, list) else 0
    described = [item for item in properties.values() if isinstance(item, dict)]
    texts = sum(bool(item.get("description")) for item in described)
    hints = contract.get("annotations")
    launch = launch or {}
    return [
        math.log1p(needed),
        math.log1p(max(len(properties) - needed, 0)),
        texts / len(properties) if properties else 1.0,
        math.log1p(len(str(contract.get("description") or "").split())),
        float(isinstance(contract.get("outputSchema"), dict)),
        float(isinstance(hints, dict) and hints.get("readOnlyHint") is True),
        float(launch.get("ecosystem") == "remote"),
    ]


def fit_rates(features: np.ndarray, worked: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """The expected share of successes of each tool, float64 [tools].

    features [tools, features]; worked, failed: calls of each, float64 [tools], 0 where none was
    seen. Newton's method on the ridge-penalised likelihood, the intercept's penalty that of one
    success and one failure more.
    """
    spread = features.std(0)
    scaled = (features - features.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    design = np.column_stack([np.ones(len(scaled)), scaled])
    base = (worked.sum() + 1) / (worked.sum() + failed.sum() + 2)
    centre = math.log(base / (1 - base))
    penalty = np.full(design.shape[1], _RIDGE)
    penalty[0] = 1.0
    weights, calls = np.zeros(design.shape[1]), worked + failed
    for _ in range(_STEPS):
        rate = 1 / (1 + np.exp(-np.clip(centre + design @ weights, -30, 30)))
        slope = design.T @ (worked - calls * rate) - penalty * weights
        curve = (design.T * (calls * rate * (1 - rate))) @ design + np.diag(penalty)
        weights = weights + np.linalg.solve(curve, slope)
    return 1 / (1 + np.exp(-np.clip(centre + design @ weights, -30, 30)))


def parse_contract(text: str) -> dict[str, Any]:
    """The contract in a row; {} for what is none."""
    try:
        contract = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return contract if isinstance(contract, dict) else {}


STRENGTH = 4.0  # calls that a prior is worth
# Calls of a level that count as much as all levels before it.
_CATEGORY, _SERVER, _ALIKE = 20.0, 5.0, 5.0
_MOST = 20.0  # calls of one tool that count in a level: one busy tool is not its category


@dataclass(frozen=True)
class ToolFeatures:
    """What is known of a tool without any call of it. features: as `describe_tool` gives them."""

    tool_id: str
    server_id: str
    category: str  # of its server
    features: Sequence[float]
    alike: Sequence[str] = field(default=())  # tool ids of look-alikes on other servers


def build_priors(
    tools: Sequence[ToolFeatures], evidence: Mapping[str, CallEvidence]
) -> tuple[dict[str, RatePrior], float]:
    """(tool id -> its prior, the rate of all tools). evidence: what calls of each tool count."""
    counts = {
        tool.tool_id: evidence.get(tool.tool_id, CallEvidence()).limit(_MOST) for tool in tools
    }
    whole = sum(counts.values(), CallEvidence())
    overall = (whole.worked + 1) / (whole.n + 2)
    if not tools:
        return {}, overall
    features = np.array([tool.features for tool in tools], np.float64)
    worked, failed = (
        np.array([getattr(counts[tool.tool_id], name) for tool in tools])
        for name in ("worked", "failed")
    )
    rates = fit_rates(features, worked, failed)
    servers: dict[str, CallEvidence] = defaultdict(CallEvidence)
    categories: dict[str, CallEvidence] = defaultdict(CallEvidence)
    for item in tools:
        servers[item.server_id] += counts[item.tool_id]
        categories[item.category] += counts[item.tool_id]
    priors = {}
    for item, rate in zip(tools, rates.tolist(), strict=True):
        without_tool = counts[item.tool_id].scale(-1)
        alike = sum((counts.get(name, CallEvidence()) for name in item.alike), CallEvidence())
        server = servers[item.server_id]
        mean = _smooth_share(categories[item.category] + server.scale(-1), rate, _CATEGORY)
        mean = _smooth_share(server + without_tool, mean, _SERVER)
        priors[item.tool_id] = RatePrior(_smooth_share(alike, mean, _ALIKE), STRENGTH)
    return priors, overall


def _smooth_share(evidence: CallEvidence, towards: float, calls: float) -> float:
    """The share of successes, as if `calls` more had gone as is expected; 0..1 whatever rounding
    left of a difference."""
    worked, n = max(evidence.worked, 0.0), max(evidence.n, 0.0)
    return min((worked + calls * towards) / (n + calls), 1.0)


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
    """What the versions before this one count for it, at most MOST_CARRIED calls. A contract that
    comes back is not its own predecessor."""
    total, factor, met = CallEvidence(), 1.0, {version}
    while (change := changes.get(version)) is not None and change.before not in met:
        factor *= CARRIED.get(change.cls, 0.0)
        version = change.before
        met.add(version)
        total += evidence.get(version, CallEvidence()).scale(factor)
    return total.limit(MOST_CARRIED)
