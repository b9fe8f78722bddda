"""Champions and releases: which model serves a role, and the one consistent set that is served.

    champions/<role>.json     {role, model, since, training_set, evidence, last_candidate}
    releases/<release>.json   {release, models {role: name}, contracts, training_set, at}
    releases/HEAD.json        {release, at}; HISTORY.jsonl every release, for rollback

What belongs here: the rule of promotion and the pointers. What does not: measuring (`evaluate.py`),
building the index of a release (`serving/index.py`).

Every role starts with a model that needs no training (`base` for the retriever, BM25 with slot
copying for the caller). A candidate replaces the incumbent only if the whole 95% interval of its
paired gain lies above zero.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from warehouse.digest import digest
from warehouse.files import append_line, write_atomically

UNTRAINED = {"retriever": "base", "caller": "baseline:bm25+slots"}


@dataclass(frozen=True)
class Champion:
    """The pointer of one role. `training_set` is what its model learnt from (None: untrained)."""

    role: str
    model: str
    training_set: str | None = None
    since: float = 0.0
    evidence: dict[str, Any] = field(default_factory=dict)
    last_candidate: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> bool:
        return self.model != UNTRAINED.get(self.role)


@dataclass(frozen=True)
class Promotion:
    """What became of a candidate, and why in one sentence."""

    promoted: bool
    champion: Champion
    why: str


def champion(home: Path, role: str) -> Champion:
    """The role's champion; the untrained model when none was ever crowned."""
    path = home / "champions" / f"{role}.json"
    if path.exists():
        return Champion(**json.loads(path.read_bytes()))
    return Champion(role, UNTRAINED.get(role, "base"))


def decide_promotion(gain: Mapping[str, float]) -> tuple[bool, str]:
    """Whether a paired gain {value, low, high, n} crowns its candidate, and why."""
    told = f"gain {gain['value']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}], n={gain['n']}"
    if gain["n"] == 0:
        return False, "nothing was measured"
    if gain["low"] > 0:
        return True, f"{told}: better beyond its interval"
    return False, f"{told}: the interval holds zero or less, the incumbent stays"


def consider(
    home: Path,
    role: str,
    candidate: str,
    training_set: str,
    gain: Mapping[str, float],
    evidence: Mapping[str, Any],
) -> Promotion:
    """Promotes the candidate or keeps the incumbent; either way the pointer records the attempt.

    Considering the same candidate on the same evidence again changes nothing.
    """
    before = champion(home, role)
    attempt = {"model": candidate, "training_set": training_set, "gain": dict(gain)}
    if before.model == candidate:
        return Promotion(False, before, "the candidate is the champion already")
    better, why = decide_promotion(gain)
    attempt |= {"promoted": better, "why": why}
    if not better and before.last_candidate == attempt:
        return Promotion(False, before, why)
    if better:
        after = Champion(role, candidate, training_set, time.time(), dict(evidence), attempt)
    else:
        after = Champion(**{**asdict(before), "last_candidate": attempt})
    body = json.dumps(asdict(after), indent=1)
    write_atomically(home / "champions" / f"{role}.json", body.encode())
    return Promotion(better, after, why)


def make_release(home: Path, models: Mapping[str, str], contracts: str, training_set: str) -> str:
    """Names one consistent set and points HEAD at it; returns the release's digest.

    `models` maps roles to model names, `contracts` is the digest of the contracts it serves. The
    same set again is the same release and leaves HEAD alone.
    """
    facts = {"models": dict(models), "contracts": contracts, "training_set": training_set}
    name = digest(facts)
    if current_release(home).get("release") == name:
        return name
    body = {"release": name, **facts, "at": time.time()}
    folder = home / "releases"
    path = folder / f"{name}.json"
    if not path.exists():  # a release that comes back is the old one, as it was
        write_atomically(path, json.dumps(body, indent=1).encode())
    append_line(folder / "HISTORY.jsonl", json.dumps({"release": name, "at": time.time()}))
    write_atomically(folder / "HEAD.json", json.dumps({"release": name}).encode())
    return name


def current_release(home: Path) -> dict[str, Any]:
    """The release HEAD points at, as a dict; empty when there is none."""
    head = home / "releases" / "HEAD.json"
    if not head.exists():
        return {}
    name = json.loads(head.read_bytes())["release"]
    return json.loads((home / "releases" / f"{name}.json").read_bytes())


def last_trained_set(home: Path, role: str) -> str | None:
    """The training set of the role's last candidate, promoted or not; None before the first."""
    known = champion(home, role)
    return known.last_candidate.get("training_set") or known.training_set
