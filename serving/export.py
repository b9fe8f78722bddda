"""A release as one folder that serves by itself: the index, its encoder, what is held.

<out>/router/…  encoders/…   as at home (`serving/index/folder.py`), the served version alone
      cards/<role>.md        the cards of the release's trained models
      RELEASE.json           {release, models {role: name}, version, embedder, tools, servers,
                             files {path: sha256}}
"""

import hashlib
import json
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

from assets.vectors.embed import find_encoder_folder
from serving.index.folder import load_index, read_served_version
from serving.router import open_router
from warehouse.storage.pointers import write_pointer

MANIFEST = "RELEASE.json"


class BadExport(ValueError):
    """A folder that cannot take an export, or is none."""


def export_release(home: Path, out: Path) -> dict[str, Any]:
    """Copies what `home` serves to a new or empty folder; returns its manifest.

    Raises BadExport, IndexMissing, IndexBroken, EncoderMissing.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadExport(f"{out}: it is there and not empty; give a new or an empty folder")
    version = read_served_version(home)
    index = load_index(home, version)
    encoder = find_encoder_folder(home, index.embedder)
    beside = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        shutil.copytree(home / "router" / version, beside / "router" / version)
        shutil.copytree(encoder, beside / "encoders" / encoder.name)
        if (home / "router" / "BLOCKED.json").exists():
            shutil.copy2(home / "router" / "BLOCKED.json", beside / "router" / "BLOCKED.json")
        # Not the HEAD of home: a run may have moved it on since its version was read.
        head = {"version": version, "release": index.release, "at": time.time()}
        write_pointer(beside / "router" / "HEAD.json", head)
        models = _read_models(home, index.release, index.adapter)
        _copy_cards(home, models, beside / "cards")
        told = {
            "release": index.release,
            "models": models,
            "version": version,
            "embedder": index.embedder,
            "tools": len(index.tools),
            "servers": len(index.servers),
            "files": _digest_files(beside),
        }
        (beside / MANIFEST).write_text(json.dumps(told, indent=1))
        open_router(beside)  # what cannot be opened is no release
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return told


def check_export(folder: Path) -> dict[str, Any]:
    """The manifest of an exported release, all its files held against it. Raises BadExport."""
    path = folder / MANIFEST
    if not path.exists():
        raise BadExport(f"{folder}: no {MANIFEST}; make one with `toolmill release export --out`")
    told = json.loads(path.read_bytes())
    found = _digest_files(folder)
    wrong = sorted(name for name, known in told["files"].items() if found.get(name) != known)
    if wrong:
        raise BadExport(
            f"{folder}: {len(wrong)} of {len(told['files'])} files are not as exported, first"
            f" {wrong[0]}; copy the folder again, or export anew"
        )
    return told


def _read_models(home: Path, release: str, adapter: str | None) -> dict[str, str]:
    """Role -> model of the release; of an ad hoc index, its retriever alone."""
    try:
        models = json.loads((home / "releases" / f"{release}.json").read_bytes())["models"]
    except (OSError, ValueError, KeyError, TypeError):
        models = {"retriever": adapter or "base"}
    return {str(role): str(name) for role, name in models.items()}


def _copy_cards(home: Path, models: dict[str, str], to: Path) -> None:
    for role, name in models.items():
        held = home / "models" / name / "README.md"
        if held.is_file():
            to.mkdir(exist_ok=True)
            shutil.copyfile(held, to / f"{role}.md")


def _digest_files(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): _digest_file(path) for path in files}


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
