"""Going back to an earlier release, and lifting that: until then a model that was rolled back is
not promoted, nor its release made, again. What is learnt or crawled later has another name."""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.releases.champion import (
    CHAMPIONS,
    DECISIONS,
    RELEASES,
    SERVED,
    RoleChampion,
    find_promotion,
    get_pointer_path,
    hold_pointer_lock,
    list_standing_rollbacks,
    make_history_line,
    move_pointers,
    read_champion,
)
from training.releases.in_service import find_index_flaw
from training.releases.release import (
    HEAD,
    ROLLBACK,
    ROUTER_HEAD,
    UNDO,
    ReleaseError,
    UnknownRelease,
    collect_left_models,
    find_release,
    list_left_releases,
    list_lineage,
    list_release_versions,
    list_releases,
    make_served_pointer,
    read_current_release,
    read_release,
    read_served,
)

Json = dict[str, Any]
Before = Callable[[str], None]  # told the version that is about to be served


@dataclass(frozen=True)
class RollbackOutcome:
    release: str  # served now
    version: str
    left: str  # the release that was served before
    models: dict[str, str]
    rejected: dict[str, list[str]]  # models that stay out until the decision is lifted
    summary: str


def roll_back_release(
    home: Path, to: str | None = None, before: Before | None = None
) -> RollbackOutcome:
    """Serves the release before, or the one named: champions, release and router move together or
    not at all, after `before(version)`. Raises ReleaseError naming what is possible,
    PointerBroken."""
    with hold_pointer_lock(home):
        left, line = _require_served_release(home), list_lineage(home)
        target = find_release(home, to) if to else _find_previous_release(home, line)
        name = target["release"]
        if name == left["release"] == read_current_release(home).get("release"):
            outcome = "it is served already: nothing moved"
            return RollbackOutcome(
                left["release"], left["version"], left["release"], target["models"], {}, outcome
            )
        version = _check_target_release(home, target)
        if before is not None:
            before(version)
        gone = list_left_releases(
            line, name, left["release"], read_current_release(home)["release"]
        )
        out = collect_left_models(home, gone, keep=set(target["models"].values()))
        decision = {
            "decision": "rollback",
            "id": uuid.uuid4().hex[:12],
            "at": time.time(),
            "from": left["release"],
            "to": name,
            "releases": gone,
            "models": out,
        }
        return _move_to_release(home, target, version, ROLLBACK, decision, out)


def undo_rollback(home: Path, before: Before | None = None) -> RollbackOutcome:
    """Lifts the last rollback: its release is served again, or, where something newer was made,
    considered again. Raises ReleaseError where none stands or it cannot be served."""
    with hold_pointer_lock(home):
        decisions = list_standing_rollbacks(home)
        if not decisions:
            raise ReleaseError("no rollback stands: there is nothing to undo")
        last = decisions[-1]
        lifted = {"decision": "undo", "id": uuid.uuid4().hex[:12], "at": time.time()}
        lifted["of"] = last["id"]
        now = _require_served_release(home)
        if read_current_release(home)["release"] != last["to"] or now["release"] != last["to"]:
            move_pointers(home, files={}, lines={DECISIONS: [lifted]})
            outcome = "lifted; a newer release was made since, and it stays"
            models = read_release(home, now["release"])["models"]
            return RollbackOutcome(
                now["release"], now["version"], now["release"], models, {}, outcome
            )
        target = find_release(home, last["from"])
        version = _check_target_release(home, target)
        if before is not None:
            before(version)
        return _move_to_release(home, target, version, UNDO, lifted, {})


def _require_served_release(home: Path) -> Json:
    now = read_served(home)
    if not now or not read_current_release(home):
        raise UnknownRelease("nothing is served yet: `make run` makes the first release")
    return now


def _find_previous_release(home: Path, line: list[str]) -> Json:
    if len(line) < 2:
        raise ReleaseError(
            f"no release was served before this one; {_describe_possible_targets(home)}"
        )
    return find_release(home, line[-2])


def _check_target_release(home: Path, target: Json) -> str:
    """The index version to serve. Raises ReleaseError if it is missing or does not open."""
    flaws, versions = list(target["missing"]), list_release_versions(home, target["release"])
    if not flaws and (flaw := find_index_flaw(home, versions[0])):
        flaws.append(flaw)
    if flaws:
        raise ReleaseError(
            f"release {target['release'][:12]} cannot be served: {'; '.join(flaws)}. Nothing has"
            f" moved; {_describe_possible_targets(home, target['release'])}"
        )
    return versions[0]


def _describe_possible_targets(home: Path, but: str = "") -> str:
    fine = [
        body["release"][:12]
        for body in list_releases(home)
        if not body["missing"] and not body["served"] and body["release"] != but
    ]
    return f"possible: {', '.join(fine) or 'none'}"


def _move_to_release(
    home: Path, target: Json, version: str, by: str, decision: Json, out: dict[str, list[str]]
) -> RollbackOutcome:
    left, name, at = read_served(home)["release"], target["release"], decision["at"]
    head, lines = make_served_pointer(home, name, version, by)
    files: dict[str, Json] = {ROUTER_HEAD: head} if head else {}  # first: out of service at once
    files[HEAD] = {"release": name, "by": by}
    if by == ROLLBACK:  # its index stays as it was; what is undone goes on as if nothing had been
        files[HEAD]["version"] = version
    outcome = f"{'rolled back' if by == ROLLBACK else 'went back again'} from {left[:12]}"
    promoted = []
    for role, model in target["models"].items():
        was = read_champion(home, role)
        if was.model == model:
            continue
        tried = dict(was.last_candidate)
        if tried.get("model") == was.model:
            tried |= {"promoted": False, "why": outcome}
        elif tried.get("model") == model:
            tried |= {"promoted": True, "why": outcome}
        promotion = find_promotion(home, was.role, model)
        now = RoleChampion(**{**asdict(promotion), "last_candidate": tried, "since": time.time()})
        files[get_pointer_path(role)] = asdict(now)
        promoted.append(make_history_line(was, now, by, outcome, at))
    entries = [{"release": name, "at": at, "by": by}]
    move_pointers(
        home,
        files=files,
        lines={DECISIONS: [decision], SERVED: lines, RELEASES: entries, CHAMPIONS: promoted},
    )
    return RollbackOutcome(name, version, left, target["models"], out, outcome)
