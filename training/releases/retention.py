"""How many past releases stay on disk, so that going back to one is possible.

Kept are the last `keep` releases that were served, each with the index version it served last. What
is served, what HEAD names, every champion and what the caller protects never goes, nor does
anything that no release or candidate of ours names.
"""

import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets.vectors.embed import encoder_folder
from training.releases.champion import UNTRAINED, champion, in_service
from training.releases.pointers import CHAMPIONS, SERVED, held, history
from training.releases.release import (
    current_release,
    index_meta,
    pinned,
    releases,
    served,
    versions_of,
)
from training.runtime.model_store import card, model_folder

KEEP = 5
_GOING = ".going-"


@dataclass
class Pruned:
    """What was removed, by name."""

    versions: list[str] = field(default_factory=list)
    encoders: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


def prune(home: Path, keep: int = KEEP, protect: Iterable[str] = ()) -> Pruned:
    """Removes what only older releases need; `protect` names models that stay.

    A kill leaves nothing half there: a folder is renamed out of sight first, and the next call
    removes what was left. Raises ValueError for fewer than one release.
    """
    if keep < 1:
        raise ValueError(f"releases to keep: {keep}, expected at least 1 (the served one)")
    with held(home):
        for left in [*home.glob(f"*/{_GOING}*")]:
            shutil.rmtree(left, ignore_errors=True)
        made = releases(home)
        kept = _kept(home, keep)
        going = _versions(home, made, kept)
        encoders = _encoders(home, going)
        models = _models(home, made, kept, set(protect))
        for folder in [
            *(home / "router" / name for name in going),
            *encoders,
            *(model_folder(home, name) for name in models),
        ]:
            _remove(folder)
        for name in models:
            (home / "jobs" / f"{name}.json").unlink(missing_ok=True)
        return Pruned(going, [folder.name for folder in encoders], models)


def _kept(home: Path, keep: int) -> set[str]:
    last = list(dict.fromkeys(line.get("release") for line in reversed(history(home, SERVED))))
    named = (served(home).get("release"), current_release(home).get("release"))
    return {str(name) for name in [*last[:keep], *named] if name}


def _versions(home: Path, made: list[dict[str, Any]], kept: set[str]) -> list[str]:
    """Of a kept release the version it served last stays, and any that was never served: it may be
    about to be."""
    was = {line.get("version") for line in history(home, SERVED)}
    stay = {served(home).get("version"), pinned(home)}
    going: list[str] = []
    for body in made:
        versions = versions_of(home, body["release"])
        if body["release"] in kept:
            stay |= {name for name in versions if name not in was} | set(versions[:1])
        going += versions
    return sorted(name for name in going if name not in stay)


def _encoders(home: Path, going: list[str]) -> list[Path]:
    """Encoders that only versions which go were made with."""
    leave = {index_meta(home, name).get("embedder") for name in going}
    staying = {
        index_meta(home, path.parent.name).get("embedder")
        for path in (home / "router").glob("*/index.json")
        if path.parent.name not in going
    }
    base = {encoder_folder(home, str(name)) for name in staying}
    found = {encoder_folder(home, str(name)) for name in leave if name} - base
    return sorted(folder for folder in found if folder.is_dir())


def _models(home: Path, made: list[dict[str, Any]], kept: set[str], protect: set[str]) -> list[str]:
    """Candidates and models of past releases that nothing kept needs."""
    stay = set(protect)
    for body in made:
        if body["release"] in kept:
            stay |= set(body["models"].values())
    for role in UNTRAINED:
        stay |= {champion(home, role).model, in_service(home, role).model}
    tried = {line.get("model") for line in history(home, CHAMPIONS)}
    tried |= {name for body in made for name in body["models"].values()}
    names = {str(name) for name in tried if name} - set(UNTRAINED.values()) - stay
    return sorted(name for name in names if card(home, name) is not None)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        aside = folder.with_name(f"{_GOING}{uuid.uuid4().hex[:8]}")
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
