"""How a candidate becomes champion: only where it passed every gate, under one lock."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from training.releases.champion import (
    KEPT,
    PROMOTED,
    Champion,
    get_pointer_path,
    make_history_line,
    read_champion,
)
from training.releases.decisions import map_rejected_models
from training.releases.gate import Gate, as_rows, judge_gates
from training.releases.in_service import find_model_flaw, find_model_in_service
from training.releases.pointers import (
    CHAMPIONS,
    hold_pointer_lock,
    move_pointers,
)


@dataclass(frozen=True)
class Promotion:
    """The outcome for a candidate, the gates it was held against, and why in one sentence."""

    promoted: bool
    champion: Champion
    why: str
    gates: list[Gate] = field(default_factory=list)


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
        # Pointer and history as one: a champion that nobody knows of could not be put back.
        line = make_history_line(before, after, PROMOTED if better else KEPT, why, time.time())
        files = {get_pointer_path(role): asdict(after)}
        move_pointers(home, files=files, lines={CHAMPIONS: [line]})
        return Promotion(better, after, why, asked)


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
