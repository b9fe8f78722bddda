"""Champions: which model serves each role, and how a candidate becomes one.

    champions/<role>.json      {role, model, since, training_set, evidence, gates, last_candidate}
    champions/HISTORY.jsonl    every candidate and change: {at, role, kind, model, was, why,
                               attempt, champion; by, reason where a person decided}

Every role starts with a model that needs no training (`base` for the retriever, BM25 with slot
copying for the caller, the retriever's order for the reranker, the
repair ladder for the sidecar). A candidate replaces the champion
only if it passed every gate.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from training.role import get_untrained_model, is_untrained
from training.runtime.model_store import read_model_card
from warehouse.storage.files import (
    Json,
    PointerBroken,
    add_history,
    hold_lock,
    read_history,
    read_pointer,
    write_pointer,
)

MOVING = "releases/MOVING.json"
CHAMPIONS, RELEASES, SERVED, DECISIONS = (
    "champions/HISTORY.jsonl", "releases/HISTORY.jsonl", "releases/SERVED.jsonl",
    "releases/DECISIONS.jsonl",
)  # fmt: skip


def read_current_pointer(home: Path, name: str, fix: str) -> Json | None:
    """The JSON object in `<home>/<name>`, mid-move too; None if absent. Raises PointerBroken."""
    coming = read_pending_move(home).get("files", {}).get(name)
    return coming if coming is not None else read_pointer(home / name, fix)


def read_current_history(home: Path, name: str) -> list[Json]:
    """The lines of a history, oldest first, with those of the move under way."""
    lines = read_history(home / name)
    coming = read_pending_move(home).get("lines", {}).get(name, [])
    return [*lines, *(line for line in coming if line not in lines)]


@contextmanager
def hold_pointer_lock(home: Path) -> Iterator[None]:
    """Holds the lock of all pointers across processes, a move that was cut short finished first."""
    with hold_lock(home / "releases" / ".lock"):
        finish_move(home)
        yield


def move_pointers(
    home: Path, *, files: Mapping[str, Json], lines: Mapping[str, Sequence[Json]]
) -> None:
    """Moves several pointers as one, under the lock, in the order of `files`: path -> content."""
    body = {"files": dict(files), "lines": {name: list(part) for name, part in lines.items()}}
    write_pointer(home / MOVING, body)
    finish_move(home)


def finish_move(home: Path) -> None:
    """Does what is left of a move; each step done twice is done once."""
    body = read_pending_move(home)
    if not body:
        return
    for name, content in body["files"].items():
        write_pointer(home / name, content)
    for name, part in body["lines"].items():
        add_history(home / name, part)
    (home / MOVING).unlink()


def read_pending_move(home: Path) -> Json:
    fix = "delete it and say again what to serve: `toolmill release rollback --to ID`"
    return read_pointer(home / MOVING, fix) or {}


PROMOTED, KEPT = "promoted", "kept"
WAITING, REFUSED = "waiting", "refused"  # for a person; by a person


@dataclass(frozen=True)
class RoleChampion:
    role: str
    model: str
    training_set: str | None = None
    since: float = 0.0
    evidence: dict[str, Any] = field(default_factory=dict)
    last_candidate: dict[str, Any] = field(default_factory=dict)
    gates: list[dict[str, Any]] = field(default_factory=list)

    @property
    def trained(self) -> bool:
        return not is_untrained(self.role, self.model)


def get_pointer_path(role: str) -> str:
    return f"champions/{role}.json"


def read_champion(home: Path, role: str) -> RoleChampion:
    """The role's champion; the untrained model where none was promoted. Raises PointerBroken."""
    body = read_current_pointer(home, get_pointer_path(role), _describe_pointer_fix(role))
    if body is not None:
        return _parse_champion(home, role, body)
    promoted = next(iter(list_promoted(home, role)[-1:]), None)
    if promoted is not None and promoted.trained:
        raise PointerBroken(
            f"{home / get_pointer_path(role)}: it is missing, but {CHAMPIONS} names"
            f" {promoted.model[:12]} as champion; {_describe_pointer_fix(role)}"
        )
    return RoleChampion(role, get_untrained_model(role))


def read_last_trained_set(home: Path, role: str) -> str | None:
    """The training set of the role's last candidate, promoted or not; None before the first."""
    champion = read_champion(home, role)
    return champion.last_candidate.get("training_set") or champion.training_set


def read_last_attempt_time(home: Path, role: str) -> float | None:
    """When the role's last candidate was considered first (epoch seconds); None before any."""
    model = read_champion(home, role).last_candidate.get("model")
    attempts = list_attempts(home, role)
    return next((line["at"] for line in attempts if line["attempt"].get("model") == model), None)


def list_attempts(home: Path, role: str, before: str | None = None) -> list[Json]:
    """The history's candidates of a role, oldest first; those before `before` first came."""
    lines = [line for line in _read_role_history(home, role) if line.get("attempt")]
    models = [line["attempt"].get("model") for line in lines]
    return lines[: models.index(before)] if before in models else lines


def find_promotion(home: Path, role: str, model: str) -> RoleChampion:
    """The pointer as it was when the model was last promoted, or a bare one."""
    if is_untrained(role, model):
        return RoleChampion(role, model)
    promotions = [item for item in list_promoted(home, role) if item.model == model]
    learnt = (read_model_card(home, model) or {}).get("training_set")
    return promotions[-1] if promotions else RoleChampion(role, model, learnt)


def make_history_line(
    before: RoleChampion, after: RoleChampion, kind: str, why: str, at: float
) -> dict:
    """A line of the history; evidence is kept where the champion changed, to be put back."""
    moved = kind not in (KEPT, WAITING, REFUSED)
    model = after.model if moved else after.last_candidate.get("model")
    line = {"at": at, "role": after.role, "kind": kind, "model": model, "was": before.model}
    line |= {"why": why, "attempt": after.last_candidate}
    return {**line, "champion": {**asdict(after), "last_candidate": {}}} if moved else line


def _parse_champion(home: Path, role: str, body: Mapping[str, Any]) -> RoleChampion:
    names = {item.name for item in fields(RoleChampion)}
    kept = {name: value for name, value in body.items() if name in names}
    lists = all(isinstance(kept.get(name, {}), dict) for name in ("evidence", "last_candidate"))
    if kept.get("role") != role or not isinstance(kept.get("model"), str) or not lists:
        raise PointerBroken(
            f"{home / get_pointer_path(role)}: is no champion of {role} (role"
            f" {kept.get('role')!r:.40}, model {kept.get('model')!r:.40}), expected"
            f" {{role, model, …}}; {_describe_pointer_fix(role)}"
        )
    champion = RoleChampion(**kept)
    return champion if champion.trained else replace(champion, model=get_untrained_model(role))


def _read_role_history(home: Path, role: str) -> list[dict[str, Any]]:
    return [line for line in read_current_history(home, CHAMPIONS) if line.get("role") == role]


def list_promoted(home: Path, role: str) -> list[RoleChampion]:
    return [
        _parse_champion(home, role, line["champion"])
        for line in _read_role_history(home, role)
        if "champion" in line
    ]


def _describe_pointer_fix(role: str) -> str:
    return f"`toolmill doctor --fix` writes it again from {CHAMPIONS}"


REFUSE, APPROVE = "refuse", "approve"
LIFT = "`toolmill release rollback --undo` lifts that"


def list_standing_rollbacks(home: Path) -> list[Json]:
    lines = read_current_history(home, DECISIONS)
    lifted = {line.get("of") for line in lines if line.get("decision") == "undo"}
    rollbacks = [line for line in lines if line.get("decision") == "rollback"]
    return [line for line in rollbacks if line.get("id") not in lifted]


def map_rejected_models(home: Path, role: str) -> dict[str, str]:
    """Models that were rolled back in a role, each with the reason it stays out."""
    return {
        model: describe_rollback(decision)
        for decision in list_standing_rollbacks(home)
        for model in decision.get("models", {}).get(role, [])
    }


def map_refused_models(home: Path, role: str) -> dict[str, str]:
    """Models of a role that a person refused and nobody approved since, each with the reason."""
    out: dict[str, str] = {}
    for line in read_current_history(home, DECISIONS):
        if line.get("role") != role:
            continue
        model = str(line.get("model"))
        if line.get("decision") == REFUSE:
            day = time.strftime("%Y-%m-%d", time.gmtime(line.get("at", 0)))
            out[model] = f"refused by {line.get('by')} on {day}: {line.get('reason')}"
        elif line.get("decision") == APPROVE:
            out.pop(model, None)
    return out


def map_refused_releases(home: Path) -> dict[str, str]:
    """Releases that were rolled back, each with the reason it is not made again."""
    return {
        name: describe_rollback(decision)
        for decision in list_standing_rollbacks(home)
        for name in decision.get("releases", [])
    }


def describe_rollback(decision: Json) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(decision.get("at", 0)))
    return f"rolled back on {day} to release {str(decision.get('to'))[:12]}; {LIFT}"
