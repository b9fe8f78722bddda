"""The fetch phase: a recipe's package becomes an artefact on disk, verified and reused."""

import json
import os
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assets.servers.packages.install import INSTALLERS, TREE, Workshop
from assets.servers.packages.run_tool import fetch_policy, own_path
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.recipe import Recipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import Toolchain, ToolMissing
from warehouse.storage.digest import digest

_MANIFEST = "toolmill.json"
_MAX_ARTIFACT_MB = 2048
_BUILT = ("npm", "pypi")  # whose packages may bring scripts and builds


@dataclass(frozen=True)
class Artifact:
    """An installed server. `argv` and `env` are as seen inside the sandbox, where `tree` lies at
    /srv/server; `locked` is the digest of everything that was installed with it.

    built_with_scripts: the package's own install scripts or build ran. scripts_skipped: it has some
    and they did not, so that a server that then fails may be worth the second attempt."""

    tree: Path
    argv: tuple[str, ...]
    env: dict[str, str]
    placeholders: tuple[str, ...]
    locked: str
    megabytes: float
    built_with_scripts: bool = False
    scripts_skipped: bool = False


def artifact_digest(recipe: Recipe, toolchain: Toolchain, *, scripts: bool = False) -> str:
    """Names the artefact: what is installed and with which runtime, not how it is launched."""
    facts = recipe.model_dump(mode="json", include={"ecosystem", "version", "integrity", "entry"})
    name = None if recipe.ecosystem == "mcpb" and recipe.integrity else recipe.name
    host = toolchain.identity(recipe.ecosystem, recipe.python)
    as_of = {"as_of": recipe.as_of} if recipe.as_of else {}
    built = {"scripts": True} if scripts else {}
    return digest({**facts, "name": name, "layout": 2, **host, **as_of, **built})


def ensure_artifact(
    recipe: Recipe,
    *,
    home: Path,
    toolchain: Toolchain,
    policy: SandboxPolicy | None = None,
    scripts: bool = False,
) -> Artifact:
    """The artefact of a recipe, fetched unless it is there. Raises PackageError.

    A package that cannot be installed without its own scripts is tried once more with them where
    the policy says so; scripts: asks for that second attempt at once."""
    second = policy is not None and policy.scripts == "second" and recipe.ecosystem in _BUILT
    if scripts and not second:
        raise PackageError("policy_denied", 'install scripts are off (`sandbox.scripts = "never"`)')
    workshop = Workshop(home, toolchain, fetch_policy(policy), scripts)
    try:
        return _ensure_fetched(recipe, workshop)
    except PackageError as error:
        if scripts or not second or error.kind != "build_failed":
            raise
    return _ensure_fetched(recipe, replace(workshop, scripts=True))


def _ensure_fetched(recipe: Recipe, workshop: Workshop) -> Artifact:
    try:
        name = artifact_digest(recipe, workshop.toolchain, scripts=workshop.scripts)
    except ToolMissing as error:
        raise PackageError("needs_software", str(error)) from error
    folder = workshop.home / "artifacts" / name
    if not (folder / _MANIFEST).exists():
        _fetch_into(recipe, folder, workshop)
    facts = json.loads((folder / _MANIFEST).read_bytes())
    lists = {name: tuple(facts[name]) for name in ("argv", "placeholders")}
    return Artifact(folder / TREE, **{**facts, **lists})


def _fetch_into(recipe: Recipe, folder: Path, workshop: Workshop) -> None:
    staging = workshop.home / "cache" / "staging" / uuid.uuid4().hex
    _sweep_staging(staging.parent)
    (staging / TREE).mkdir(parents=True)
    own_path(staging)
    own_path(staging / TREE)
    try:
        install = INSTALLERS[recipe.ecosystem]
        facts = install(recipe, staging, workshop)
        if (staging / TREE).is_symlink():  # it would be mounted for the server, wherever it leads
            raise PackageError(
                "build_failed", "its install scripts put a link in place of its folder"
            )
        shutil.rmtree(staging / "caches", ignore_errors=True)  # of an attempt with scripts
        size = _measure_megabytes(staging)
        if size > _MAX_ARTIFACT_MB:
            raise PackageError("oversize", f"installs {size:.0f} MB")
        facts |= {"megabytes": round(size, 1), "built_with_scripts": workshop.scripts}
        _write_manifest(staging, facts)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            staging.rename(folder)
        except OSError:
            if not (folder / _MANIFEST).exists():  # else another run was first with the same
                raise
    except ToolMissing as error:
        raise PackageError("needs_software", str(error)) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_manifest(staging: Path, facts: dict[str, Any]) -> None:
    """A script of the package may have left a link in its place, to write elsewhere through us."""
    path = staging / _MANIFEST
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as f:
        f.write(json.dumps(facts))


def _sweep_staging(folder: Path) -> None:
    """Removes what fetches that were killed left behind more than a day ago."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - 86_400:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _measure_megabytes(folder: Path) -> float:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(root, name)).st_size
    return total / (1 << 20)
