"""Champions: which model serves each role, and how a candidate becomes one.

    champions/<role>.json      {role, model, since, training_set, evidence, gates, last_candidate}
    champions/HISTORY.jsonl    every candidate and change: {at, role, kind, model, was, why,
                               attempt, champion}

Every role starts with a model that needs no training (`base` for the retriever, BM25 with slot
copying for the caller). A candidate replaces the champion only if it passed every gate.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from training.caller.tiny.base import TINY, base_flaw
from training.releases.decisions import rejected
from training.releases.gate import Gate, as_rows, verdict
from training.releases.pointers import (
    CHAMPIONS,
    held,
    history,
    move,
    read,
)
from training.runtime.model_store import card, model_folder
from warehouse.storage.pointers import PointerBroken, read_pointer, write_pointer

UNTRAINED = {"retriever": "base", "caller": "baseline:bm25+slots"}
PROMOTED, KEPT = "promoted", "kept"


@dataclass(frozen=True)
class Champion:
    """The pointer of one role. `training_set` is what its model learnt from (None: untrained)."""

    role: str
    model: str
    training_set: str | None = None
    since: float = 0.0
    evidence: dict[str, Any] = field(default_factory=dict)
    last_candidate: dict[str, Any] = field(default_factory=dict)
    gates: list[dict[str, Any]] = field(default_factory=list)

    @property
    def trained(self) -> bool:
        return self.model != UNTRAINED.get(self.role)


@dataclass(frozen=True)
class Promotion:
    """What became of a candidate, the gates it was held against, and why in one sentence."""

    promoted: bool
    champion: Champion
    why: str
    gates: list[Gate] = field(default_factory=list)


@dataclass(frozen=True)
class InService:
    """The model that can serve a role now; `told` says why when it is not the champion."""

    model: str
    told: str | None = None


def pointer(role: str) -> str:
    return f"champions/{role}.json"


def champion(home: Path, role: str) -> Champion:
    """The role's champion; the untrained model where none was promoted. Raises PointerBroken."""
    body = read(home, pointer(role), _mend(role))
    if body is not None:
        return _parsed(home, role, body)
    promoted = _last_promoted(home, role)
    if promoted is not None and promoted.trained:
        raise PointerBroken(
            f"{home / pointer(role)}: it is missing, but {CHAMPIONS} names {promoted.model[:12]} as"
            f" champion; {_mend(role)}"
        )
    return Champion(role, UNTRAINED.get(role, "base"))


def in_service(home: Path, role: str) -> InService:
    """The champion where its model is whole; else the champion before it that is and was not rolled
    back, else the untrained model. Raises PointerBroken."""
    now = champion(home, role)
    untrained = UNTRAINED.get(role, "base")
    flaw = None if now.model == untrained else model_flaw(home, role, now.model)
    if flaw is None:
        return InService(now.model)
    out = rejected(home, role)
    before = [one.model for one in reversed(_promoted(home, role)) if one.model not in out]
    whole = (m for m in before if m != untrained and model_flaw(home, role, m) is None)
    model = next(whole, untrained)
    which = "the untrained model" if model == untrained else "the champion before it"
    return InService(
        model,
        f"{role}: champion {now.model[:12]} cannot serve ({flaw}); {which}, {model[:20]}, serves."
        f" Put its folder back, or train again: materialize {role}_adapter",
    )


def model_flaw(home: Path, role: str, name: str) -> str | None:
    """Why a trained model cannot serve; None when its card and weights are there, its base too."""
    if name == UNTRAINED.get(role):
        return None
    try:
        about = card(home, name)
    except (OSError, ValueError) as error:
        return f"models/{name[:12]}: its card cannot be read ({error})"
    if about is None:
        return f"models/{name[:12]} is missing"
    if about.get("role", role) != role:
        return f"models/{name[:12]} is a {about['role']}"
    if about.get("base") == TINY and (flaw := base_flaw(str(about.get("base_name")))):
        return flaw
    return _unreadable(model_folder(home, name))


def consider(
    home: Path,
    role: str,
    candidate: str,
    training_set: str,
    gates: Sequence[Gate],
    evidence: Mapping[str, Any],
) -> Promotion:
    """Promotes the candidate or keeps the champion; either way the pointer records the attempt.

    `evidence` is the summary that the gates are of. The same candidate on the same evidence again
    changes nothing. Under a lock: of two candidates measured against one champion, the second to
    come is told that another serves now. Raises PointerBroken, OSError.
    """
    with held(home):
        before = champion(home, role)
        if before.model == candidate:
            return Promotion(False, before, "the candidate is the champion already", list(gates))
        asked = [*gates, *_standing(home, role, candidate, evidence)]
        better, why = verdict(asked)
        attempt = {
            "model": candidate,
            "training_set": training_set,
            "promoted": better,
            "why": why,
            "gates": as_rows(asked),
        }
        if not better and before.last_candidate == attempt:
            return Promotion(False, before, why, asked)
        if better:
            rows = as_rows(asked)
            after = Champion(
                role, candidate, training_set, time.time(), dict(evidence), attempt, rows
            )
        else:
            after = Champion(**{**asdict(before), "last_candidate": attempt})
        _record(home, before, after, PROMOTED if better else KEPT, why)
        return Promotion(better, after, why, asked)


def restore(home: Path, role: str) -> Champion:
    """Writes a champion's lost or broken pointer again from the history; a whole one is left as it
    is. Raises PointerBroken where the history knows none."""
    with held(home):
        try:
            if read_pointer(home / pointer(role), "") is not None:
                return champion(home, role)
        except PointerBroken:
            pass
        known = _last_promoted(home, role)
        if known is None:
            raise PointerBroken(
                f"{home / CHAMPIONS}: names no champion of {role}; delete {pointer(role)}, and the"
                f" untrained model serves until {role}_champion is materialized"
            )
        tried = [line["attempt"] for line in _of(home, role) if line.get("attempt")]
        after = Champion(**{**asdict(known), "last_candidate": tried[-1] if tried else {}})
        write_pointer(home / pointer(role), asdict(after))
        return after


def last_trained_set(home: Path, role: str) -> str | None:
    """The training set of the role's last candidate, promoted or not; None before the first."""
    known = champion(home, role)
    return known.last_candidate.get("training_set") or known.training_set


def promoted_as(home: Path, role: str, model: str) -> Champion:
    """The pointer as it was when the model was last promoted, or a bare one."""
    if model == UNTRAINED.get(role):
        return Champion(role, model)
    found = [one for one in _promoted(home, role) if one.model == model]
    learnt = (card(home, model) or {}).get("training_set")
    return found[-1] if found else Champion(role, model, learnt)


def history_line(before: Champion, after: Champion, kind: str, why: str, at: float) -> dict:
    """A line of the history; evidence is kept where the champion changed, to be put back."""
    moved = kind != KEPT
    model = after.model if moved else after.last_candidate.get("model")
    line = {"at": at, "role": after.role, "kind": kind, "model": model, "was": before.model}
    line |= {"why": why, "attempt": after.last_candidate}
    return {**line, "champion": {**asdict(after), "last_candidate": {}}} if moved else line


def _record(home: Path, before: Champion, after: Champion, kind: str, why: str) -> None:
    """Pointer and history as one: a champion that nobody knows of could not be put back."""
    line = history_line(before, after, kind, why, time.time())
    move(home, files={pointer(after.role): asdict(after)}, lines={CHAMPIONS: [line]})


def _standing(home: Path, role: str, candidate: str, evidence: Mapping[str, Any]) -> list[Gate]:
    """What holds only now, under the lock: who serves, and whether the candidate can."""
    serving = in_service(home, role).model
    pair = tuple(str(evidence.get(name, "nobody")) for name in ("candidate", "incumbent"))
    found = " against ".join(name[:20] for name in pair)
    against = Gate(
        "against_champion",
        pair == (candidate, serving),
        f"{found} was measured",
        f"{candidate[:20]} against {serving[:20]}",
    )
    flaw = model_flaw(home, role, candidate)
    whole = Gate("model_on_disk", flaw is None, flaw or "card and weights read", "a whole model")
    out = rejected(home, role).get(candidate)
    clear = Gate("not_rolled_back", out is None, out or "never", "no rollback of it that stands")
    return [against, whole, clear]


def _parsed(home: Path, role: str, body: Mapping[str, Any]) -> Champion:
    names = {one.name for one in fields(Champion)}
    kept = {name: value for name, value in body.items() if name in names}
    lists = all(isinstance(kept.get(name, {}), dict) for name in ("evidence", "last_candidate"))
    if kept.get("role") != role or not isinstance(kept.get("model"), str) or not lists:
        raise PointerBroken(
            f"{home / pointer(role)}: is no champion of {role} (role {kept.get('role')!r:.40},"
            f" model {kept.get('model')!r:.40}), expected {{role, model, …}}; {_mend(role)}"
        )
    return Champion(**kept)


def _of(home: Path, role: str) -> list[dict[str, Any]]:
    return [line for line in history(home, CHAMPIONS) if line.get("role") == role]


def _promoted(home: Path, role: str) -> list[Champion]:
    """The champions of a role in the order they became it."""
    return [_parsed(home, role, line["champion"]) for line in _of(home, role) if "champion" in line]


def _last_promoted(home: Path, role: str) -> Champion | None:
    return next(iter(_promoted(home, role)[-1:]), None)


def _unreadable(folder: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return f"models/{folder.name[:12]} holds no weights"
    for path in files:
        try:
            with safe_open(str(path), "np"):  # reads the header and holds it against the size
                continue
        except (OSError, SafetensorError) as error:
            return f"models/{folder.name[:12]}/{path.name}: {error}"
    return None


def _mend(role: str) -> str:
    return f"`toolmill champion restore {role}` writes it again from {CHAMPIONS}"
