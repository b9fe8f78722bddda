"""Whether a release serves worse than the one before it: an exact test at a few fixed looks.

At the first n, 2n, 4n … units of the release its failures are held against those of the release
before by Fisher's exact test, one-sided. The looks share the rate of false alarms: alpha/2,
alpha/4, alpha/8 …, so that over the whole life of a release, however often it is looked at, one
that is no worse is taken for worse with a probability of at most alpha. What is looked at is fixed
by the log alone: looking again tells the same.

Sources: Fisher (1935); Bonferroni over looks, as in group sequential designs (Pocock 1977).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RollbackPolicy:
    """When a release that serves worse is rolled back by itself."""

    alpha: Annotated[
        float, Field(gt=0, lt=0.5, description="chance that a release no worse is rolled back")
    ] = 0.01
    min_units: Annotated[
        int, Field(ge=20, description="questions that each of the two releases answered at least")
    ] = 100
    min_drop: Annotated[
        float, Field(ge=0, le=1, description="of the share that ends well, at least")
    ] = 0.05
    cool_down_h: Annotated[
        float, Field(ge=0, description="hours after any rollback in which none follows by itself")
    ] = 72.0


@dataclass(frozen=True)
class Comparison:
    """What the looks came to. p: of the decisive look, else the smallest; None before the first."""

    worse: bool
    units: int
    good: float | None
    units_before: int
    good_before: float | None
    p: float | None
    bound: float | None
    looks: int

    def describe(self) -> str:
        if self.good is None or self.good_before is None or self.p is None:
            return f"too few questions: {self.units}, and {self.units_before} of the release before"
        shares = f"{self.good:.3f} of {self.units} questions ended well"
        before = f"{self.good_before:.3f} of {self.units_before} with the release before"
        return f"{shares}, {before}; p {self.p:.2g} at look {self.looks}, bound {self.bound:.2g}"


def compare_releases(
    now: Sequence[bool], before: Sequence[bool], policy: RollbackPolicy
) -> Comparison:
    """Holds the units of a release against those of the one before it."""
    least = policy.min_units
    if len(now) < least or len(before) < least:
        return Comparison(False, len(now), None, len(before), None, None, None, 0)
    good_before = sum(before) / len(before)
    size, look, last = least, 1, None
    while size <= len(now):
        seen = now[:size]
        good, bound = sum(seen) / size, policy.alpha / 2**look
        p = compute_tail(size - sum(seen), size, len(before) - sum(before), len(before))
        worse = p <= bound and good_before - good >= policy.min_drop
        found = Comparison(worse, size, good, len(before), good_before, p, bound, look)
        if worse:
            return found
        last = found
        size, look = size * 2, look + 1
    assert last is not None
    return last


def compute_tail(bad: int, n: int, bad_before: int, n_before: int) -> float:
    """Fisher's exact p, one-sided: the chance of at least so many failures among `n`, were they
    drawn from all failures of both."""
    total = bad + bad_before
    everything = _count_log(n + n_before, total)
    return min(
        1.0,
        sum(
            exp(_count_log(n, k) + _count_log(n_before, total - k) - everything)
            for k in range(bad, min(n, total) + 1)
            if total - k <= n_before
        ),
    )


def _count_log(n: int, k: int) -> float:
    """The logarithm of n over k."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
