"""How a candidate becomes champion: only where it passed every gate, under one lock, and in a role
that a person decides on, once that person approved it."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from training.gates import PromotionGate, as_rows, judge_gates
from training.releases.champion import (
    APPROVE,
    CHAMPIONS,
    DECISIONS,
    KEPT,
    PROMOTED,
    REFUSE,
    REFUSED,
    WAITING,
    RoleChampion,
    get_pointer_path,
    hold_pointer_lock,
    make_history_line,
    map_refused_models,
    map_rejected_models,
    move_pointers,
    read_champion,
)
from training.releases.in_service import find_model_flaw, find_model_in_service


class PromotionError(ValueError):
    """A promotion that cannot be decided on; the message says why."""


@dataclass(frozen=True)
class PromotionOutcome:
    """The outcome for a candidate, the gates it was held against, and why in one sentence.
    waiting: it passed every gate, and a person has to approve it."""

    promoted: bool
    champion: RoleChampion
    why: str
    gates: list[PromotionGate] = field(default_factory=list)
    waiting: bool = False


def consider_candidate(
    home: Path,
    role: str,
    candidate: str,
    training_set: str,
    gates: Sequence[PromotionGate],
    evidence: Mapping[str, Any],
    *,
    by_hand: bool = False,
) -> PromotionOutcome:
    """Promotes the candidate or keeps the champion, and records the attempt. `by_hand`: one that
    passed every gate waits for approval. `evidence`: the gates' summary; the same again changes
    nothing. Two measured against one champion cannot both win. Raises PointerBroken, OSError."""
    with hold_pointer_lock(home):
        before = read_champion(home, role)
        if before.model == candidate:
            return PromotionOutcome(
                False, before, "the candidate is the champion already", list(gates)
            )
        asked = [*gates, *_check_standing_gates(home, role, candidate, evidence)]
        better, why = judge_gates(asked)
        last = before.last_candidate
        if last.get("refused") and last.get("model") == candidate and not better:
            return PromotionOutcome(False, before, why, asked)  # it may be approved after all
        waiting = better and by_hand
        if waiting:
            why = f"waits for `toolmill champion {role} --approve`; {why}"
        attempt = {
            "model": candidate,
            "training_set": training_set,
            "promoted": better and not waiting,
            "why": why,
            "gates": as_rows(asked),
            "new_tools": evidence.get("new_tools"),
        }
        if waiting:
            attempt |= {"waiting": True, "evidence": dict(evidence)}
        if (waiting or not better) and last == attempt:
            return PromotionOutcome(False, before, why, asked, waiting)
        if better and not waiting:
            rows = as_rows(asked)
            after = RoleChampion(
                role, candidate, training_set, time.time(), dict(evidence), attempt, rows
            )
        else:
            after = RoleChampion(**{**asdict(before), "last_candidate": attempt})
        kind = WAITING if waiting else PROMOTED if better else KEPT
        _record_change(home, before, after, kind, why)
        return PromotionOutcome(better and not waiting, after, why, asked, waiting)


def approve_candidate(home: Path, role: str, *, by: str, why: str) -> RoleChampion:
    """Promotes the candidate that waits, or that was refused; what must hold today is asked again.
    Raises PromotionError where none waits or it cannot serve now, PointerBroken, OSError."""
    with hold_pointer_lock(home):
        before, attempt = _read_decidable(home, role, by, why)
        name, evidence = attempt["model"], attempt["evidence"]
        standing = _check_standing_gates(home, role, name, evidence, refusable=False)
        better, reason = judge_gates(standing)
        if not better:
            raise PromotionError(f"{role} {name[:12]} cannot be approved: {reason}")
        gates = attempt["gates"]
        done = {**attempt, "promoted": True, "why": f"approved by {by}: {why}"}
        for key in ("waiting", "evidence", "refused"):
            done.pop(key, None)
        after = RoleChampion(
            role, name, attempt["training_set"], time.time(), dict(evidence), done, gates
        )
        _record_change(home, before, after, PROMOTED, done["why"], APPROVE, by=by, reason=why)
        return after


def refuse_candidate(home: Path, role: str, *, by: str, why: str) -> RoleChampion:
    """Keeps the champion: the candidate that waits is not promoted by any later run, until it is
    approved after all. Raises PromotionError where none waits, PointerBroken, OSError."""
    with hold_pointer_lock(home):
        before, attempt = _read_decidable(home, role, by, why)
        if attempt.get("refused"):
            raise PromotionError(f"{role} {attempt['model'][:12]} was refused already")
        done = {**attempt, "waiting": False, "refused": True, "why": f"refused by {by}: {why}"}
        after = RoleChampion(**{**asdict(before), "last_candidate": done})
        _record_change(home, before, after, REFUSED, done["why"], REFUSE, by=by, reason=why)
        return after


def _read_decidable(
    home: Path, role: str, by: str, why: str
) -> tuple[RoleChampion, dict[str, Any]]:
    """The champion and the candidate that a person may decide on."""
    for name, text in (("the author", by), ("the reason", why)):
        if not text.strip():
            raise PromotionError(f"{name} is empty, expected a text")
    before = read_champion(home, role)
    attempt = before.last_candidate
    if not (attempt.get("waiting") or attempt.get("refused")):
        last = "there was none yet"
        if attempt:
            outcome = "was promoted" if attempt.get("promoted") else "did not pass every gate"
            last = f"{attempt['model'][:12]} {outcome} ({attempt['why']})"
        raise PromotionError(
            f"no candidate of {role} waits to be decided on; the last one: {last}. One that passed"
            " every gate waits in the roles of [training.promotion] by_hand"
        )
    return before, dict(attempt)


def _record_change(
    home: Path,
    before: RoleChampion,
    after: RoleChampion,
    kind: str,
    why: str,
    decision: str | None = None,
    **about: str,
) -> None:
    """Pointer, history and decision as one: an unrecorded champion could not be put back."""
    at = time.time()
    lines = {CHAMPIONS: [make_history_line(before, after, kind, why, at) | about]}
    if decision is not None:
        entry = {"decision": decision, "id": uuid.uuid4().hex[:12], "at": at, "role": after.role}
        lines[DECISIONS] = [{**entry, "model": after.last_candidate["model"], **about}]
    move_pointers(home, files={get_pointer_path(after.role): asdict(after)}, lines=lines)


def _check_standing_gates(
    home: Path, role: str, candidate: str, evidence: Mapping[str, Any], *, refusable: bool = True
) -> list[PromotionGate]:
    """What holds only now, under the lock: who serves, and whether the candidate can. refusable:
    whether that a person refused it counts."""
    serving = find_model_in_service(home, role).model
    pair = tuple(str(evidence.get(name, "nobody")) for name in ("candidate", "incumbent"))
    found = " against ".join(name[:20] for name in pair)
    against = PromotionGate(
        "against_champion",
        pair == (candidate, serving),
        f"{found} was measured",
        f"{candidate[:20]} against {serving[:20]}",
    )
    flaw = find_model_flaw(home, role, candidate)
    whole = PromotionGate(
        "model_on_disk", flaw is None, flaw or "card and weights read", "a whole model"
    )
    out = map_rejected_models(home, role).get(candidate)
    clear = PromotionGate(
        "not_rolled_back", out is None, out or "never", "no rollback of it that stands"
    )
    refused = map_refused_models(home, role).get(candidate) if refusable else None
    if refused is None:
        return [against, whole, clear]
    return [
        against,
        whole,
        clear,
        PromotionGate("not_refused", False, refused, "no refusal that stands"),
    ]
