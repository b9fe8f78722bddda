"""How many past releases stay: the last `keep` served ones, each with its last index version; and
what is served, at HEAD, champion or protected, or named by no release or candidate of ours."""

import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets.vectors.encoders.saved import find_encoder_folder
from training.releases.champion import (
    CHAMPIONS,
    SERVED,
    hold_pointer_lock,
    read_champion,
    read_current_history,
)
from training.releases.in_service import find_model_in_service, read_index_meta
from training.releases.release import (
    get_pinned_version,
    list_release_versions,
    list_releases,
    read_current_release,
    read_served,
)
from training.role import list_roles
from training.runtime.model_store import get_model_folder, read_model_card
from training.settings import RetentionPolicy

_GOING = ".going-"


@dataclass
class PrunedModels:
    versions: list[str] = field(default_factory=list)
    encoders: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)

    def list_folders(self, home: Path) -> list[Path]:
        return [
            *(home / "router" / name for name in self.versions),
            *(home / "encoders" / name for name in self.encoders),
            *(get_model_folder(home, name) for name in self.models),
        ]


def prune_releases(
    home: Path,
    policy: RetentionPolicy | None = None,
    protect: Iterable[str] = (),
    *,
    before: float | None = None,
) -> PrunedModels:
    """Removes what only older releases need, but not models in `protect` or what was written since
    `before` (epoch seconds). The next call removes what a kill leaves."""
    with hold_pointer_lock(home):
        for left in [*home.glob(f"*/{_GOING}*")]:
            shutil.rmtree(left, ignore_errors=True)
        result = plan_pruning(home, policy, protect, before=before)
        for folder in result.list_folders(home):
            if folder.is_dir():
                aside = folder.with_name(f"{_GOING}{uuid.uuid4().hex[:8]}")
                folder.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
        for name in result.models:
            (home / "jobs" / f"{name}.json").unlink(missing_ok=True)
        return result


def plan_pruning(
    home: Path,
    policy: RetentionPolicy | None = None,
    protect: Iterable[str] = (),
    *,
    before: float | None = None,
) -> PrunedModels:
    releases = list_releases(home)
    kept_releases = _list_kept_releases(home, (policy or RetentionPolicy()).keep)
    prunable_versions = _list_prunable_versions(home, releases, kept_releases)
    going = [name for name in prunable_versions if _is_older(home / "router" / name, before)]
    # What a version needs that stays for its age stays with it.
    kept_releases |= {
        str(read_index_meta(home, name).get("release")) for name in {*prunable_versions} - {*going}
    }
    # Encoders that only versions which go were made with
    leave = {read_index_meta(home, name).get("embedder") for name in going}
    staying = {
        read_index_meta(home, path.parent.name).get("embedder")
        for path in (home / "router").glob("*/index.json")
        if path.parent.name not in going
    }
    base = {find_encoder_folder(home, str(name)) for name in staying}
    folders = {find_encoder_folder(home, str(name)) for name in leave if name} - base
    encoders = sorted(folder for folder in folders if folder.is_dir())
    stay = set(protect)
    for body in releases:
        if body["release"] in kept_releases:
            stay |= set(body["models"].values())
    for role in list_roles():
        stay |= {read_champion(home, role).model, find_model_in_service(home, role).model}
    tried = {line.get("model") for line in read_current_history(home, CHAMPIONS)}
    tried |= {name for body in releases for name in body["models"].values()}
    names = (
        {str(name) for name in tried if name}
        - {role.untrained for role in list_roles().values()}
        - stay
    )
    models = sorted(name for name in names if read_model_card(home, name) is not None)
    return PrunedModels(
        going,
        [folder.name for folder in encoders if _is_older(folder, before)],
        [name for name in models if _is_older(get_model_folder(home, name), before)],
    )


def _is_older(folder: Path, before: float | None) -> bool:
    return before is None or (folder.exists() and folder.stat().st_mtime < before)


def _list_kept_releases(home: Path, keep: int) -> set[str]:
    last = list(
        dict.fromkeys(line.get("release") for line in reversed(read_current_history(home, SERVED)))
    )
    named = (read_served(home).get("release"), read_current_release(home).get("release"))
    return {str(name) for name in [*last[:keep], *named] if name}


def _list_prunable_versions(home: Path, made: list[dict[str, Any]], kept: set[str]) -> list[str]:
    """All but a kept release's last served version and those never served, which may yet be."""
    was = {line.get("version") for line in read_current_history(home, SERVED)}
    stay = {read_served(home).get("version"), get_pinned_version(home)}
    going: list[str] = []
    for body in made:
        versions = list_release_versions(home, body["release"])
        if body["release"] in kept:
            stay |= {name for name in versions if name not in was} | set(versions[:1])
        going += versions
    return sorted(name for name in going if name not in stay)
