"""Checks of what is served: the release, its models, its index, its encoder."""

import json
from pathlib import Path
from typing import Any

from assets.vectors.encoders.saved import find_encoder_folder
from extensions.upkeep.doctor.check import NOTICE, Finding, Home, Looked
from serving.index.folder import load_index
from serving.index.model import IndexBroken, IndexMissing
from training.releases.in_service import find_model_in_service
from training.releases.pointers import MOVING, read_pending_move
from training.releases.release import ReleaseError, read_current_release, read_release, read_served
from training.releases.stored import list_release_flaws, read_index_meta
from training.role import list_roles
from warehouse.storage.files import PointerBroken, find_file_flaw

_SERVE = "materialize release and router_index: toolmill run; or toolmill release rollback"


def check_release(at: Home) -> Looked:
    """Whether what is served is whole and fits itself, by every digest that it names."""
    try:
        served, current = read_served(at.home), read_current_release(at.home)
    except (PointerBroken, ReleaseError) as error:
        return Looked(1, [Finding("releases/HEAD.json", str(error), _SERVE)])
    if not served:
        problem = "a release was made, and no index of it is served"
        return Looked(0, [Finding("router/HEAD.json", problem, _SERVE)] if current else [])
    version, name = str(served.get("version")), str(served.get("release"))
    thing = f"releases/{name[:12]}"
    try:
        release = read_release(at.home, name)
    except (PointerBroken, ReleaseError) as error:
        return Looked(1, [Finding(thing, str(error), _SERVE)])
    flaws = [*list_release_flaws(at.home, release, version), *_list_index_flaws(at.home, version)]
    encoder = _find_encoder_flaw(at.home, read_index_meta(at.home, version))
    found = [Finding(thing, flaw, _SERVE) for flaw in dict.fromkeys([*flaws, *encoder])]
    return Looked(1 + len(release.get("models") or {}), found)


def _list_index_flaws(home: Path, version: str) -> list[str]:
    try:
        load_index(home, version)
    except (IndexBroken, IndexMissing) as error:
        return [" ".join(str(error).split())]
    return []


def _find_encoder_flaw(home: Path, meta: dict[str, Any]) -> list[str]:
    """What its card names and is another file; [] for an encoder that holds no files."""
    folder = find_encoder_folder(home, str(meta.get("embedder")))
    try:
        files = json.loads((folder / "encoder.json").read_bytes()).get("files") or {}
        named = {name: one["sha256"] for name, one in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"{folder.name}/encoder.json cannot be read ({error})"]
    flaw = find_file_flaw(folder, named)
    return [flaw] if flaw else []


def check_champions(at: Home) -> Looked:
    """Whether each role's champion serves, and no move of pointers was cut short."""
    found = []
    for role in list_roles():
        try:
            notice = find_model_in_service(at.home, role).notice
        except PointerBroken as error:
            fix = f"toolmill champion restore {role}"
            found.append(Finding(f"champions/{role}.json", str(error), fix))
            continue
        if notice:
            found.append(Finding(f"champions/{role}.json", notice, f"materialize {role}_adapter"))
    try:
        moving = read_pending_move(at.home)
    except PointerBroken as error:
        return Looked(len(list_roles()), [*found, Finding(MOVING, str(error), f"rm {MOVING}")])
    if moving:
        problem = "a move of pointers was cut short, or goes on now; it counts as done"
        found.append(Finding(MOVING, problem, "any run or `toolmill release` finishes it", NOTICE))
    return Looked(len(list_roles()), found)
