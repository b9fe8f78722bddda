"""The fetch phase: a recipe's package becomes an artefact on disk, verified and reused.

Belongs here: naming, staging and reusing artefacts. An artefact is a folder named by the digest of
what was installed and with what; it appears by an atomic rename, so a killed fetch leaves none.
Does not belong here: installing (`install.py`), starting the server (`deploy.py`), and the
registry's answers (`resolve.py`).
"""

import json
import os
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assets.servers.bundle import BundleError
from assets.servers.contained import own
from assets.servers.install import INSTALLERS, TREE, FetchError
from assets.servers.recipe import Recipe
from assets.servers.toolchain import Toolchain, ToolMissing
from warehouse.digest import digest

_MANIFEST = "toolmill.json"
_MAX_ARTIFACT_MB = 2048


@dataclass(frozen=True)
class Artifact:
    """An installed server. `argv` and `env` are as seen inside the sandbox, where `tree` lies at
    /srv/server; `locked` is the digest of everything that was installed with it."""

    tree: Path
    argv: tuple[str, ...]
    env: dict[str, str]
    placeholders: tuple[str, ...]
    locked: str
    megabytes: float


def artifact_digest(recipe: Recipe, toolchain: Toolchain) -> str:
    """Names the artefact: what is installed and with which runtime, not how it is launched."""
    facts = recipe.model_dump(mode="json", include={"ecosystem", "version", "integrity", "entry"})
    name = None if recipe.ecosystem == "mcpb" and recipe.integrity else recipe.name
    host = toolchain.identity(recipe.ecosystem, recipe.python)
    as_of = {"as_of": recipe.as_of} if recipe.as_of else {}
    return digest({**facts, "name": name, "layout": 1, **host, **as_of})


def ensure_artifact(recipe: Recipe, *, home: Path, toolchain: Toolchain) -> Artifact:
    """The artefact of a recipe, fetched unless it is there. Raises FetchError."""
    try:
        folder = home / "artifacts" / artifact_digest(recipe, toolchain)
    except ToolMissing as error:
        raise FetchError("needs_software", str(error)) from error
    if not (folder / _MANIFEST).exists():
        _fetch(recipe, folder, home, toolchain)
    facts = json.loads((folder / _MANIFEST).read_bytes())
    return Artifact(
        tree=folder / TREE,
        argv=tuple(facts["argv"]),
        env=facts["env"],
        placeholders=tuple(facts["placeholders"]),
        locked=facts["locked"],
        megabytes=facts["megabytes"],
    )


def _fetch(recipe: Recipe, folder: Path, home: Path, toolchain: Toolchain) -> None:
    staging = home / "cache" / "staging" / uuid.uuid4().hex
    _sweep(staging.parent)
    (staging / TREE).mkdir(parents=True)
    own(staging)
    own(staging / TREE)
    try:
        install = INSTALLERS[recipe.ecosystem]
        facts = install(recipe, staging, home, toolchain)
        size = _megabytes(staging)
        if size > _MAX_ARTIFACT_MB:
            raise FetchError("oversize", f"installs {size:.0f} MB")
        (staging / _MANIFEST).write_text(json.dumps({**facts, "megabytes": round(size, 1)}))
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            staging.rename(folder)
        except OSError:
            if not (folder / _MANIFEST).exists():  # else another run was first with the same
                raise
    except (ToolMissing, BundleError) as error:
        kind = "needs_software" if isinstance(error, ToolMissing) else "build_failed"
        raise FetchError(kind, str(error)) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Removes what fetches that were killed left behind more than a day ago."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - 86_400:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _megabytes(folder: Path) -> float:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(root, name)).st_size
    return total / (1 << 20)
