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

from training.caller.tiny.base import TINY, find_tiny_base_flaw
from training.releases.decisions import map_rejected_models
from training.releases.gate import Gate, as_rows, judge_gates
from training.releases.pointers import (
    CHAMPIONS,
    hold_pointer_lock,
    move_pointers,
    read_current_history,
    read_current_pointer,
)
from training.runtime.model_store import get_model_folder, read_model_card
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


def get_pointer_path(role: str) -> str:
    return f"champions/{role}.json"


def read_champion(home: Path, role: str) -> Champion:
    """The role's champion; the untrained model where none was promoted. Raises PointerBroken."""
    body = read_current_pointer(home, get_pointer_path(role), _describe_pointer_fix(role))
    if body is not None:
        return _parse_champion(home, role, body)
    promoted = _find_last_promoted(home, role)
    if promoted is not None and promoted.trained:
        raise PointerBroken(
            f"{home / get_pointer_path(role)}: it is missing, but {CHAMPIONS} names"
            f" {promoted.model[:12]} as"
            f" champion; {_describe_pointer_fix(role)}"
        )
    return Champion(role, UNTRAINED.get(role, "base"))


def find_model_in_service(home: Path, role: str) -> InService:
    """The champion where its model is whole; else the champion before it that is and was not rolled
    back, else the untrained model. Raises PointerBroken."""
    now = read_champion(home, role)
    untrained = UNTRAINED.get(role, "base")
    flaw = None if now.model == untrained else find_model_flaw(home, role, now.model)
    if flaw is None:
        return InService(now.model)
    out = map_rejected_models(home, role)
    before = [one.model for one in reversed(_list_promoted(home, role)) if one.model not in out]
    whole = (m for m in before if m != untrained and find_model_flaw(home, role, m) is None)
    model = next(whole, untrained)
    which = "the untrained model" if model == untrained else "the champion before it"
    return InService(
        model,
        f"{role}: champion {now.model[:12]} cannot serve ({flaw}); {which}, {model[:20]}, serves."
        f" Put its folder back, or train again: materialize {role}_adapter",
    )


def find_model_flaw(home: Path, role: str, name: str) -> str | None:
    """Why a trained model cannot serve; None when its card and weights are there, its base too."""
    if name == UNTRAINED.get(role):
        return None
    try:
        about = read_model_card(home, name)
    except (OSError, ValueError) as error:
        return f"models/{name[:12]}: its card cannot be read ({error})"
    if about is None:
        return f"models/{name[:12]} is missing"
    if about.get("role", role) != role:
        return f"models/{name[:12]} is a {about['role']}"
    if about.get("base") == TINY and (flaw := find_tiny_base_flaw(str(about.get("base_name")))):
        return flaw
    return _find_unreadable_weights(get_model_folder(home, name))


def consider_candidate(
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
    with hold_pointer_lock(home):
        before = read_champion(home, role)
        if before.model == candidate:
            return Promotion(False, before, "the candidate is the champion already", list(gates))
        asked = [*gates, *_check_standing_gates(home, role, candidate, evidence)]
        better, why = judge_gates(asked)
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
        _record_promotion(home, before, after, PROMOTED if better else KEPT, why)
        return Promotion(better, after, why, asked)


def restore_pointer(home: Path, role: str) -> Champion:
    """Writes a champion's lost or broken pointer again from the history; a whole one is left as it
    is. Raises PointerBroken where the history knows none."""
    with hold_pointer_lock(home):
        try:
            if read_pointer(home / get_pointer_path(role), "") is not None:
                return read_champion(home, role)
        except PointerBroken:
            pass
        known = _find_last_promoted(home, role)
        if known is None:
            raise PointerBroken(
                f"{home / CHAMPIONS}: names no champion of {role}; delete"
                f" {get_pointer_path(role)}, and the"
                f" untrained model serves until {role}_champion is materialized"
            )
        tried = [line["attempt"] for line in _read_role_history(home, role) if line.get("attempt")]
        after = Champion(**{**asdict(known), "last_candidate": tried[-1] if tried else {}})
        write_pointer(home / get_pointer_path(role), asdict(after))
        return after


def read_last_trained_set(home: Path, role: str) -> str | None:
    """The training set of the role's last candidate, promoted or not; None before the first."""
    known = read_champion(home, role)
    return known.last_candidate.get("training_set") or known.training_set


def find_promotion(home: Path, role: str, model: str) -> Champion:
    """The pointer as it was when the model was last promoted, or a bare one."""
    if model == UNTRAINED.get(role):
        return Champion(role, model)
    found = [one for one in _list_promoted(home, role) if one.model == model]
    learnt = (read_model_card(home, model) or {}).get("training_set")
    return found[-1] if found else Champion(role, model, learnt)


def make_history_line(before: Champion, after: Champion, kind: str, why: str, at: float) -> dict:
    """A line of the history; evidence is kept where the champion changed, to be put back."""
    moved = kind != KEPT
    model = after.model if moved else after.last_candidate.get("model")
    line = {"at": at, "role": after.role, "kind": kind, "model": model, "was": before.model}
    line |= {"why": why, "attempt": after.last_candidate}
    return {**line, "champion": {**asdict(after), "last_candidate": {}}} if moved else line


def _record_promotion(home: Path, before: Champion, after: Champion, kind: str, why: str) -> None:
    """Pointer and history as one: a champion that nobody knows of could not be put back."""
    line = make_history_line(before, after, kind, why, time.time())
    move_pointers(
        home, files={get_pointer_path(after.role): asdict(after)}, lines={CHAMPIONS: [line]}
    )


def _check_standing_gates(
    home: Path, role: str, candidate: str, evidence: Mapping[str, Any]
) -> list[Gate]:
    """What holds only now, under the lock: who serves, and whether the candidate can."""
    serving = find_model_in_service(home, role).model
    pair = tuple(str(evidence.get(name, "nobody")) for name in ("candidate", "incumbent"))
    found = " against ".join(name[:20] for name in pair)
    against = Gate(
        "against_champion",
        pair == (candidate, serving),
        f"{found} was measured",
        f"{candidate[:20]} against {serving[:20]}",
    )
    flaw = find_model_flaw(home, role, candidate)
    whole = Gate("model_on_disk", flaw is None, flaw or "card and weights read", "a whole model")
    out = map_rejected_models(home, role).get(candidate)
    clear = Gate("not_rolled_back", out is None, out or "never", "no rollback of it that stands")
    return [against, whole, clear]


def _parse_champion(home: Path, role: str, body: Mapping[str, Any]) -> Champion:
    names = {one.name for one in fields(Champion)}
    kept = {name: value for name, value in body.items() if name in names}
    lists = all(isinstance(kept.get(name, {}), dict) for name in ("evidence", "last_candidate"))
    if kept.get("role") != role or not isinstance(kept.get("model"), str) or not lists:
        raise PointerBroken(
            f"{home / get_pointer_path(role)}: is no champion of {role} (role"
            f" {kept.get('role')!r:.40},"
            f" model {kept.get('model')!r:.40}), expected {{role, model, …}};"
            f" {_describe_pointer_fix(role)}"
        )
    return Champion(**kept)


def _read_role_history(home: Path, role: str) -> list[dict[str, Any]]:
    return [line for line in read_current_history(home, CHAMPIONS) if line.get("role") == role]


def _list_promoted(home: Path, role: str) -> list[Champion]:
    """The champions of a role in the order they became it."""
    return [
        _parse_champion(home, role, line["champion"])
        for line in _read_role_history(home, role)
        if "champion" in line
    ]


def _find_last_promoted(home: Path, role: str) -> Champion | None:
    return next(iter(_list_promoted(home, role)[-1:]), None)


def _find_unreadable_weights(folder: Path) -> str | None:
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


def _describe_pointer_fix(role: str) -> str:
    return f"`toolmill champion restore {role}` writes it again from {CHAMPIONS}"
