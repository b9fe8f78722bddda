"""The fetch phase: a recipe's package becomes an artefact on disk, verified and reused."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from assets.servers.packages.install import INSTALLERS, Workshop
from assets.servers.packages.run_tool import fetch_policy
from assets.servers.packages.staging import MANIFEST, TREE, open_staging
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.recipe import Recipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import Toolchain, ToolMissing
from warehouse.storage.digest import digest

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
    if not (folder / MANIFEST).exists():
        _fetch_into(recipe, folder, workshop)
    facts = json.loads((folder / MANIFEST).read_bytes())
    lists = {name: tuple(facts[name]) for name in ("argv", "placeholders")}
    return Artifact(folder / TREE, **{**facts, **lists})


def _fetch_into(recipe: Recipe, folder: Path, workshop: Workshop) -> None:
    try:
        with open_staging(workshop.home) as staging:
            facts = INSTALLERS[recipe.ecosystem](recipe, staging, workshop)
            size = _measure_megabytes(staging.tree)
            if size > _MAX_ARTIFACT_MB:
                raise PackageError("oversize", f"installs {size:.0f} MB")
            facts |= {"megabytes": round(size, 1), "built_with_scripts": workshop.scripts}
            staging.publish(facts, folder)
    except ToolMissing as error:
        raise PackageError("needs_software", str(error)) from error


def _measure_megabytes(folder: Path) -> float:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(root, name)).st_size
    return total / (1 << 20)
