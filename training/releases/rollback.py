"""Going back to a release that was served before, and lifting that decision again.

A model that was rolled back is not promoted again, and its release not made again, until the
decision is lifted. What is learnt or crawled later has another name and is considered as ever.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.releases.champion import (
    UNTRAINED,
    Champion,
    champion,
    history_line,
    pointer,
    promoted_as,
)
from training.releases.decisions import standing
from training.releases.pointers import CHAMPIONS, DECISIONS, RELEASES, SERVED, held, history, move
from training.releases.release import (
    HEAD,
    ROLLBACK,
    ROUTER_HEAD,
    UNDO,
    ReleaseError,
    current_release,
    find_release,
    openable,
    pointing,
    release_of,
    releases,
    served,
    versions_of,
)

Json = dict[str, Any]
Before = Callable[[str], None]  # told the version that is about to be served


@dataclass(frozen=True)
class Moved:
    """What a rollback or its undoing did."""

    release: str  # served now
    version: str
    left: str  # the release that was served before
    models: dict[str, str]
    rejected: dict[str, list[str]]  # models that stay out until the decision is lifted
    told: str


def rollback(home: Path, to: str | None = None, before: Before | None = None) -> Moved:
    """Serves the release before the served one, or the one named: champions, release and router
    move together or not at all. `before(version)` is called when all is checked, nothing moved yet.

    Raises ReleaseError naming what is missing and which releases are possible, PointerBroken.
    """
    with held(home):
        left, line = _now(home), lineage(home)
        target = find_release(home, to) if to else _previous(home, line)
        name = target["release"]
        if name == left["release"] == current_release(home).get("release"):
            return _same(home, target, left)
        version = _checked(home, target)
        if before is not None:
            before(version)
        gone = _left_behind(line, name, left["release"], current_release(home)["release"])
        out = _models(home, gone, keep=set(target["models"].values()))
        decision = {
            "decision": "rollback",
            "id": uuid.uuid4().hex[:12],
            "at": time.time(),
            "from": left["release"],
            "to": name,
            "releases": gone,
            "models": out,
        }
        return _move(home, target, version, ROLLBACK, decision, out)


def undo(home: Path, before: Before | None = None) -> Moved:
    """Lifts the last rollback that stands. Where nothing newer was made since, the release that was
    left is served again; else what it kept out is considered again from the next run on.

    Raises ReleaseError where no rollback stands, or the release cannot be served any more.
    """
    with held(home):
        decisions = standing(home)
        if not decisions:
            raise ReleaseError("no rollback stands: there is nothing to undo")
        last = decisions[-1]
        lifted = {"decision": "undo", "id": uuid.uuid4().hex[:12], "at": time.time()}
        lifted["of"] = last["id"]
        now = _now(home)
        if current_release(home)["release"] != last["to"] or now["release"] != last["to"]:
            move(home, files={}, lines={DECISIONS: [lifted]})
            told = "lifted; a newer release was made since, and it stays"
            models = release_of(home, now["release"])["models"]
            return Moved(now["release"], now["version"], now["release"], models, {}, told)
        target = find_release(home, last["from"])
        version = _checked(home, target)
        if before is not None:
            before(version)
        return _move(home, target, version, UNDO, lifted, {})


def lineage(home: Path) -> list[str]:
    """The releases that led to the served one, oldest first: a rollback takes away what it left."""
    stack: list[str] = []
    for line in history(home, SERVED):
        name = line.get("release")
        if line.get("by") == ROLLBACK and name in stack:
            stack = stack[: len(stack) - stack[::-1].index(name)]
        elif name and (not stack or stack[-1] != name):
            stack.append(name)
    now = served(home).get("release")
    return stack if not now or stack[-1:] == [now] else [*stack, now]


def _now(home: Path) -> Json:
    now = served(home)
    if not now or not current_release(home):
        raise ReleaseError("nothing is served yet: `make run` makes the first release")
    return now


def _previous(home: Path, line: list[str]) -> Json:
    if len(line) < 2:
        raise ReleaseError(f"no release was served before this one; {_possible(home)}")
    return find_release(home, line[-2])


def _checked(home: Path, target: Json) -> str:
    """The index version to serve. Raises ReleaseError where anything of the release is missing or
    does not open."""
    flaws, versions = list(target["missing"]), versions_of(home, target["release"])
    if not flaws and (flaw := openable(home, versions[0])):
        flaws.append(flaw)
    if flaws:
        raise ReleaseError(
            f"release {target['release'][:12]} cannot be served: {'; '.join(flaws)}. Nothing has"
            f" moved; {_possible(home, target['release'])}"
        )
    return versions[0]


def _possible(home: Path, but: str = "") -> str:
    fine = [
        body["release"][:12]
        for body in releases(home)
        if not body["missing"] and not body["served"] and body["release"] != but
    ]
    return f"possible: {', '.join(fine) or 'none'}"


def _left_behind(line: list[str], to: str, *names: str) -> list[str]:
    """The releases between the one gone back to and the served one, with those named."""
    since = line[len(line) - line[::-1].index(to) :] if to in line else []
    return [name for name in dict.fromkeys([*since, *names]) if name != to]


def _models(home: Path, gone: Iterable[str], keep: set[str]) -> dict[str, list[str]]:
    """The trained models of the releases left behind that the target does not serve."""
    found: dict[str, list[str]] = {}
    for name in gone:
        for role, model in release_of(home, name)["models"].items():
            known = found.setdefault(role, [])
            if model not in {*keep, *known, UNTRAINED.get(role)}:
                known.append(model)
    return {role: models for role, models in found.items() if models}


def _move(
    home: Path, target: Json, version: str, by: str, decision: Json, out: dict[str, list[str]]
) -> Moved:
    left, name, at = served(home)["release"], target["release"], decision["at"]
    head, lines = pointing(home, name, version, by)
    files: dict[str, Json] = {ROUTER_HEAD: head} if head else {}  # first: out of service at once
    files[HEAD] = {"release": name, "by": by}
    if by == ROLLBACK:  # its index stays as it was; what is undone goes on as if nothing had been
        files[HEAD]["version"] = version
    told = f"{'rolled back' if by == ROLLBACK else 'went back again'} from {left[:12]}"
    promoted = []
    for role, model in target["models"].items():
        was = champion(home, role)
        if was.model == model:
            continue
        now = _crown(home, was, model, told)
        files[pointer(role)] = asdict(now)
        promoted.append(history_line(was, now, by, told, at))
    made = [{"release": name, "at": at, "by": by}]
    move(
        home,
        files=files,
        lines={DECISIONS: [decision], SERVED: lines, RELEASES: made, CHAMPIONS: promoted},
    )
    return Moved(name, version, left, target["models"], out, told)


def _crown(home: Path, was: Champion, model: str, told: str) -> Champion:
    """The champion as it was when its model was promoted; what was tried last stays known, so that
    drift does not take the last training for one that never was."""
    tried = dict(was.last_candidate)
    if tried.get("model") == was.model:
        tried |= {"promoted": False, "why": told}
    elif tried.get("model") == model:
        tried |= {"promoted": True, "why": told}
    known = promoted_as(home, was.role, model)
    return Champion(**{**asdict(known), "last_candidate": tried, "since": time.time()})


def _same(home: Path, target: Json, left: Json) -> Moved:
    told = "it is served already: nothing moved"
    return Moved(left["release"], left["version"], left["release"], target["models"], {}, told)
