"""How often a tool works, by what was seen of it: Beta-smoothed, decayed, with an interval."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
