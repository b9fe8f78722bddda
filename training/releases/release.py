"""Releases: the one consistent set that is served, by name, and what of it is still on disk.

    releases/<release>.json     {release, models {role: name}, contracts, training_set, at}
    releases/HEAD.json          {release, by, version}: the one the next index is built for;
                                `version` is set by a rollback: its index then stays as it is
    releases/HISTORY.jsonl      every release that became HEAD
    releases/SERVED.jsonl       {release, version, at, by}: every index version that was served
    router/HEAD.json            {version, release, at}: what is served; all that serving follows

Serving reads router/HEAD.json alone, and each version folder names its release, encoder and
adapter: between the steps release -> router_index -> serve the release before is served, whole.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from serving.index.folder import load_index
from training.releases.champion import (
    RELEASES,
    SERVED,
    hold_pointer_lock,
    map_refused_releases,
    move_pointers,
    read_current_history,
    read_current_pointer,
)
from training.releases.in_service import list_release_flaws, read_index_meta
from training.role import is_untrained
from warehouse.errors import UnusableInput
from warehouse.storage.digest import digest
from warehouse.storage.files import read_pointer, write_atomically

Json = dict[str, Any]
HEAD, ROUTER_HEAD = "releases/HEAD.json", "router/HEAD.json"
RUN, ROLLBACK, UNDO = "run", "rollback", "undo"
_FIX = "delete it and materialize release and router_index: `make run`"


class ReleaseError(ValueError):
    """A release that is not on disk or does not fit itself."""


class UnknownRelease(ReleaseError, UnusableInput):
    """A name that no release has, or several have; or none is served."""


def make_release(home: Path, models: Mapping[str, str], contracts: str, training_set: str) -> str:
    """Names a consistent set and points HEAD at it; returns the current release's digest. `models`:
    role -> name, `contracts`: digest of those it serves. The same set again, or one that was rolled
    back (`find_release_refusal`), leaves HEAD alone."""
    facts = {"models": dict(models), "contracts": contracts, "training_set": training_set}
    name = digest(facts)
    with hold_pointer_lock(home):
        current = str(read_current_release(home).get("release") or "")
        if current == name or (current and name in map_refused_releases(home)):
            return current
        path = home / "releases" / f"{name}.json"
        if not path.exists():  # a release that comes back is the old one, as it was
            body = {"release": name, **facts, "at": time.time()}
            write_atomically(path, json.dumps(body, indent=1).encode())
        line = {"release": name, "at": time.time(), "by": RUN}
        move_pointers(home, files={HEAD: {"release": name, "by": RUN}}, lines={RELEASES: [line]})
    return name


def find_release_refusal(
    home: Path, models: Mapping[str, str], contracts: str, training_set: str
) -> str | None:
    """Why this very set is not made a release again; None where nothing speaks against it."""
    facts = {"models": dict(models), "contracts": contracts, "training_set": training_set}
    return map_refused_releases(home).get(digest(facts))


def read_current_release(home: Path) -> Json:
    """The release HEAD points at, as a dict; empty when there is none. Raises PointerBroken."""
    head = read_current_pointer(home, HEAD, _FIX)
    return read_release(home, str(head.get("release"))) if head else {}


def read_release(home: Path, name: str) -> Json:
    body = read_pointer(home / "releases" / f"{name}.json", _FIX)
    if body is None:
        raise ReleaseError(f"{home}/releases/{name}.json: there is no such file; {_FIX}")
    return body


def read_served(home: Path) -> Json:
    """{version, release, at} of what is served; empty before the first. Raises PointerBroken."""
    return read_current_pointer(home, ROUTER_HEAD, _FIX) or {}


def get_pinned_version(home: Path) -> str | None:
    """The index version that a rollback serves until another release is made, else None."""
    head = read_current_pointer(home, HEAD, _FIX) or {}
    return head.get("version")


def serve_version(home: Path, version: str) -> str:
    """Serves an index version of the current release; returns the served version. Nothing moves if
    the release moved meanwhile or a rollback holds one. Raises ReleaseError for a version of
    another release, IndexBroken."""
    with hold_pointer_lock(home):
        now, release = read_served(home), read_current_release(home)
        overtaken = read_index_meta(home, version).get("release") != release.get("release")
        stays = get_pinned_version(home) or (now.get("version") if overtaken else None)
        if stays:
            return stays
        flaws = list_release_flaws(home, release, version)
        if flaws:
            raise ReleaseError(
                f"release {release.get('release', '-')[:12]} is not served: {'; '.join(flaws)};"
                " materialize router_index again"
            )
        load_index(home, version)
        head, lines = make_served_pointer(home, release["release"], version, RUN)
        if head is not None:
            move_pointers(home, files={ROUTER_HEAD: head}, lines={SERVED: lines})
        return version


def make_served_pointer(
    home: Path, release: str, version: str, by: str
) -> tuple[Json | None, list[Json]]:
    """(the new router/HEAD.json, or None where it is that already; lines for SERVED)."""
    if read_served(home).get("version") == version:
        return None, []
    head = {"version": version, "release": release, "at": time.time()}
    return head, [{**head, "by": by}]


def list_releases(home: Path) -> list[Json]:
    """Every release that was made, the newest first: {…facts, versions, served, current,
    rolled_back, missing}; `missing` is empty where it could be served."""
    lines = reversed(read_current_history(home, RELEASES))
    names = list(dict.fromkeys(line.get("release") for line in lines))
    now, current = read_served(home), read_current_release(home).get("release")
    out = map_refused_releases(home)
    results = []
    for body in _iterate_releases(home, names):
        name = body["release"]
        versions = list_release_versions(home, name)
        results.append(
            {
                **body,
                "versions": versions,
                "served": name == now.get("release"),
                "current": name == current,
                "rolled_back": out.get(name),
                "missing": list_release_flaws(home, body, versions[0] if versions else None),
            }
        )
    return results


def find_release(home: Path, prefix: str) -> Json:
    """The release of that name, or of which it is the beginning. Raises UnknownRelease."""
    releases = list_releases(home)
    matches = [body for body in releases if prefix and body["release"].startswith(prefix)]
    if len(matches) != 1:
        names = ", ".join(body["release"][:12] for body in releases[:8]) or "none was made yet"
        what = f"{len(matches)} releases begin with" if matches else "no release"
        raise UnknownRelease(f"{what} {prefix!r:.80}; known, newest first: {names}")
    return matches[0]


def list_release_versions(home: Path, release: str) -> list[str]:
    """The index versions of a release that are on disk, the last served first."""
    was = [line.get("version") for line in read_current_history(home, SERVED)]
    order = {version: at for at, version in enumerate(was)}
    found = [
        path.parent.name
        for path in (home / "router").glob("*/index.json")
        if not path.parent.name.startswith(".")
        and read_index_meta(home, path.parent.name).get("release") == release
    ]
    return sorted(found, key=lambda name: (-order.get(name, -1), name))


def _iterate_releases(home: Path, names: list[Any]) -> Iterator[Json]:
    for name in names:
        try:
            yield read_release(home, str(name))
        except ValueError:  # its file was taken away: it cannot be told of, nor served
            continue


def list_lineage(home: Path) -> list[str]:
    """The releases that led to the served one, oldest first: a rollback takes away what it left."""
    stack: list[str] = []
    for line in read_current_history(home, SERVED):
        name = line.get("release")
        if line.get("by") == ROLLBACK and name in stack:
            stack = stack[: len(stack) - stack[::-1].index(name)]
        elif name and (not stack or stack[-1] != name):
            stack.append(name)
    now = read_served(home).get("release")
    return stack if not now or stack[-1:] == [now] else [*stack, now]


def list_left_releases(line: list[str], to: str, *names: str) -> list[str]:
    """The releases between the one gone back to and the served one, with those named."""
    since = line[len(line) - line[::-1].index(to) :] if to in line else []
    return [name for name in dict.fromkeys([*since, *names]) if name != to]


def collect_left_models(home: Path, gone: Iterable[str], keep: set[str]) -> dict[str, list[str]]:
    """The trained models of the releases left behind that the target does not serve."""
    models_of: dict[str, list[str]] = {}
    for name in gone:
        for role, model in read_release(home, name)["models"].items():
            known = models_of.setdefault(role, [])
            if model not in {*keep, *known} and not is_untrained(role, model):
                known.append(model)
    return {role: models for role, models in models_of.items() if models}
