"""What callers met with while a release was served, out of the log of calls.

A unit is what one token asked for with the same words: of its calls the last one counts, so that
neither a loop of tries nor one busy caller's repeated question counts many times. Only calls that
ran here count; what a token reports of a call is its word alone, and counts for nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma
from pathlib import Path
from typing import Any

from assets.servers.calls.log import CallLog
from training.releases.champion import SERVED, list_rollbacks, read_current_history
from training.releases.release import RUN, list_lineage, read_served
from training.releases.rollback import RollbackOutcome, roll_back_release
from training.settings import RollbackPolicy

GOOD = ("ok",)
BAD = ("tool_error", "invalid_arguments", "failed")
# Whose fault no release can be: a missing key, a setting, a service elsewhere.
ELSEWHERE = ("credentials", "policy", "upstream")


def count_units(
    lines: Iterable[dict[str, Any]], versions: Collection[str], since: float
) -> list[bool]:
    """Whether each unit ended well, in the order in which they began.

    versions: the index versions that are counted; since: epoch seconds.
    """
    wanted = set(versions)
    found: dict[tuple[str, str], bool] = {}
    for line in lines:
        status = line.get("status")
        if line.get("index") not in wanted or line["at"] < since:
            continue
        if status not in (*GOOD, *BAD) or line.get("blame") in ELSEWHERE:
            continue
        asked = line.get("query") or line.get("tool_id") or ""
        found[str(line.get("token")), str(asked)] = status in GOOD
    return list(found.values())


@dataclass(frozen=True)
class ReleaseComparison:
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
) -> ReleaseComparison:
    """Holds the units of a release against those of the one before it."""
    least = policy.min_units
    if len(now) < least or len(before) < least:
        return ReleaseComparison(False, len(now), None, len(before), None, None, None, 0)
    good_before = sum(before) / len(before)
    size, look, last = least, 1, None
    while size <= len(now):
        seen = now[:size]
        good, bound = sum(seen) / size, policy.alpha / 2**look
        p = compute_tail(size - sum(seen), size, len(before) - sum(before), len(before))
        worse = p <= bound and good_before - good >= policy.min_drop
        release_comparison = ReleaseComparison(
            worse, size, good, len(before), good_before, p, bound, look
        )
        if worse:
            return release_comparison
        last = release_comparison
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


AUTHOR = "live outcomes"
_MOST_UNITS = 20_000  # of the release before: more changes no decision
_DAYS = 60  # of the log


@dataclass(frozen=True)
class WatchOutcome:
    """What was found of the served release, and what was done: `moved` where it was rolled back."""

    release: str | None
    before: str | None
    why: str
    comparison: ReleaseComparison | None = None
    moved: RollbackOutcome | None = None


def watch_release(
    home: Path, policy: RollbackPolicy, now: float, hold: Callable[[str], None] | None = None
) -> WatchOutcome:
    """Rolls the served release back where its calls end worse than those of the one before; tells
    why, and why not. hold: as of `roll_back_release`.

    Raises ReleaseError where the release before cannot be served, PointerBroken.
    """
    result = judge_release(home, policy, now)
    if result.comparison is None or not result.comparison.worse or result.before is None:
        return result
    moved = roll_back_release(
        home, result.before, hold, by=AUTHOR, why=result.why, served=result.release
    )
    return WatchOutcome(result.release, result.before, result.why, result.comparison, moved)


def judge_release(home: Path, policy: RollbackPolicy, now: float) -> WatchOutcome:
    """Whether the served release serves worse; nothing moves. now: epoch seconds."""
    served, line = read_served(home), list_lineage(home)
    name = served.get("release")
    if name is None or len(line) < 2:
        return WatchOutcome(name, None, "no release was served before this one")
    last = list_rollbacks(home)[-1:]
    at, cool_down = float(last[0].get("at", 0)) if last else 0.0, policy.cool_down_h * 3600
    # What lies further ahead was noted by a clock that has been set back since.
    if last and abs(now - at) < cool_down:
        left = (at + cool_down - now) / 3600
        return WatchOutcome(name, line[-2], f"a rollback cools down for {left:.1f} hours more")
    history = read_current_history(home, SERVED)
    own = [item for item in history if item.get("release") == name]
    if not own or own[-1].get("by") != RUN:
        return WatchOutcome(name, line[-2], "a person or a rollback put it in service: it stays")
    comparison = _compare(home, policy, now, name, line[-2], history)
    return WatchOutcome(name, line[-2], comparison.describe(), comparison)


def _compare(
    home: Path,
    policy: RollbackPolicy,
    now: float,
    name: str,
    before: str,
    history: Sequence[Mapping[str, Any]],
) -> ReleaseComparison:
    since = now - _DAYS * 86_400
    lines = list(CallLog(home).read(since))
    versions: dict[str, set[str]] = {name: set(), before: set()}
    for item in history:
        if item.get("release") in versions:
            versions[str(item["release"])].add(str(item.get("version")))
    units = {key: count_units(lines, held, since) for key, held in versions.items()}
    return compare_releases(units[name], units[before][-_MOST_UNITS:], policy)
