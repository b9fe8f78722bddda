"""How often a tool works, by what was seen of it: Beta-smoothed, decayed, with an interval."""

from collections.abc import Mapping
from dataclasses import dataclass

from assets.outcomes.reliability.observation import EXECUTION
from warehouse.statistics import wilson_interval


@dataclass(frozen=True)
class Evidence:
    """What calls count together: those that worked, and those that did not."""

    worked: float = 0.0
    failed: float = 0.0

    @property
    def n(self) -> float:
        return self.worked + self.failed

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(self.worked + other.worked, self.failed + other.failed)

    def scale(self, factor: float) -> "Evidence":
        return Evidence(self.worked * factor, self.failed * factor)

    def limit(self, most: float) -> "Evidence":
        """The same share of successes, of at most so many calls."""
        return self.scale(most / self.n) if self.n > most else self


@dataclass(frozen=True)
class Prior:
    """What is expected before any call: a share of successes, worth so many calls."""

    mean: float
    strength: float

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.mean * self.strength, (1 - self.mean) * self.strength)


@dataclass(frozen=True)
class Estimate:
    """The share of calls that work, its 95% interval, and the calls seen that it rests on: decayed
    and weighed, so not a whole number; 0 where it is the prior's alone."""

    mean: float
    low: float
    high: float
    n: float


def estimate_rate(seen: Evidence, prior: Prior) -> Estimate:
    """The mean of the Beta distribution that the prior becomes by what was seen, with Wilson's
    interval of its counts."""
    total = seen + prior.evidence
    low, high = wilson_interval(total.worked, total.n)
    mean = total.worked / total.n if total.n else 0.5
    return Estimate(mean, min(low, mean), max(high, mean), seen.n)


def unite_sources(by_source: Mapping[str, Evidence], alone: float) -> Evidence:
    """All sources' evidence together. No token outweighs all other sources, unless these have fewer
    than `alone` calls: a flood is worth no more than what it has to drown out."""
    whole = sum(one.n for one in by_source.values())
    total = Evidence()
    for source in sorted(by_source):
        own = by_source[source]
        most = own.n if source == EXECUTION else max(alone, whole - own.n)
        total += own.limit(most)
    return total
