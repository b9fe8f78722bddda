"""Rolls back a release that serves worse than the one before it, by the log of calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.servers.calls.log import CallLog
from training.releases.decisions import list_rollbacks
from training.releases.lineage import list_lineage
from training.releases.live.calls import count_units
from training.releases.live.regression import Comparison, RollbackPolicy, compare_releases
from training.releases.pointers import SERVED, read_current_history
from training.releases.release import RUN, read_served
from training.releases.rollback import Moved, roll_back_release

AUTHOR = "live outcomes"
_MOST_UNITS = 20_000  # of the release before: more changes no decision
_DAYS = 60  # of the log


@dataclass(frozen=True)
class Watched:
    """What was found of the served release, and what was done: `moved` where it was rolled back."""

    release: str | None
    before: str | None
    why: str
    comparison: Comparison | None = None
    moved: Moved | None = None


def watch_release(
    home: Path, policy: RollbackPolicy, now: float, hold: Callable[[str], None] | None = None
) -> Watched:
    """Rolls the served release back where its calls end worse than those of the one before; tells
    why, and why not. hold: as of `roll_back_release`.

    Raises ReleaseError where the release before cannot be served, PointerBroken.
    """
    found = judge_release(home, policy, now)
    if found.comparison is None or not found.comparison.worse or found.before is None:
        return found
    moved = roll_back_release(
        home, found.before, hold, by=AUTHOR, why=found.why, served=found.release
    )
    return Watched(found.release, found.before, found.why, found.comparison, moved)


def judge_release(home: Path, policy: RollbackPolicy, now: float) -> Watched:
    """Whether the served release serves worse; nothing moves. now: epoch seconds."""
    served, line = read_served(home), list_lineage(home)
    name = served.get("release")
    if name is None or len(line) < 2:
        return Watched(name, None, "no release was served before this one")
    last = list_rollbacks(home)[-1:]
    at, cool_down = float(last[0].get("at", 0)) if last else 0.0, policy.cool_down_h * 3600
    # What lies further ahead was noted by a clock that has been set back since.
    if last and abs(now - at) < cool_down:
        left = (at + cool_down - now) / 3600
        return Watched(name, line[-2], f"a rollback cools down for {left:.1f} hours more")
    history = read_current_history(home, SERVED)
    own = [one for one in history if one.get("release") == name]
    if not own or own[-1].get("by") != RUN:
        return Watched(name, line[-2], "a person or a rollback put it in service: it stays")
    comparison = _compare(home, policy, now, name, line[-2], history)
    return Watched(name, line[-2], comparison.describe(), comparison)


def _compare(
    home: Path,
    policy: RollbackPolicy,
    now: float,
    name: str,
    before: str,
    history: Sequence[Mapping[str, Any]],
) -> Comparison:
    since = now - _DAYS * 86_400
    lines = list(CallLog(home).read(since))
    versions: dict[str, set[str]] = {name: set(), before: set()}
    for one in history:
        if one.get("release") in versions:
            versions[str(one["release"])].add(str(one.get("version")))
    units = {key: count_units(lines, held, since) for key, held in versions.items()}
    return compare_releases(units[name], units[before][-_MOST_UNITS:], policy)
