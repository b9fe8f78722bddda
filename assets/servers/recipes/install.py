"""Installing a package: an artefact on disk, verified, reused, and the command that starts it."""

import configparser
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes import unpack
from assets.servers.recipes.fetch_phase import (
    FETCH,
    FETCH_POLICY,
    MANIFEST,
    TREE,
    StagingFolder,
    ToolExit,
    download,
    fetch_policy,
    open_staging,
    run_tool,
)
from assets.servers.recipes.package_files import SERVER, read_command
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.spec import SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import HostToolchain, ToolMissing
from warehouse.patterns import compile_pattern
from warehouse.storage.digest import digest, read_sha256
from warehouse.storage.untrusted_files import (
    UnreadableFile,
    list_files,
    match_paths,
    measure_tree,
    open_file,
    open_folder,
    read_file,
)

_INSIDE = f"{FETCH}/{TREE}"
_MAX_JSON = 1 << 26
_UNPACK_MB = 256  # of memory: names of 20,000 entries take a tenth of it
_NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "_virtualenv.py")
# What an installer says, by the kind of failure that it is.
_NPM_WORDS = {
    "not_found": r"\bE404\b|\bETARGET\b|No matching version|404 Not Found",
    # A dependency from git is refused: by its own code where npm knows the setting.
    "build_failed": r"EALLOWGIT|/bin/false|EBADPLATFORM|EBADENGINE|Unsupported (platform|engine)"
    r"|ERESOLVE",
}
_UV_WORDS = {
    "integrity": r"Hash mismatch",
    "build_failed": r"No solution found|no wheels|building .{0,40}disabled|requires-python"
    r"|only-binary|Failed to build|no (usable|compatible) wheel",
    "not_found": r"not found in the package registry|no version of",
}


@dataclass(frozen=True)
class InstallContext:
    """Where and how a package is installed; none of its own scripts runs."""

    home: Path
    toolchain: HostToolchain
    policy: SandboxPolicy = FETCH_POLICY


def _install_npm(
    recipe: LaunchRecipe, staging: StagingFolder, workshop: InstallContext
) -> dict[str, Any]:
    node, npm = workshop.toolchain.require_node()
    argv = (
        *(str(node), str(npm), "install", "--prefix", _INSIDE, "--omit=dev", "--ignore-scripts"),
        *("--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error", "--no-bin-links"),
        *("--install-strategy=hoisted", "--", f"{recipe.name}@{recipe.version}"),
        *recipe.requirements,
    )
    what = f"npm install {recipe.name}@{recipe.version}"
    _run_installer(what, argv, staging, workshop, _NPM_WORDS, _find_node_headers(node))
    lock = _read_json(staging, "node_modules/.package-lock.json").get("packages", {})
    installed = lock.get(f"node_modules/{recipe.name}", {}).get("integrity")
    if recipe.integrity and installed != recipe.integrity:
        raise PackageError("integrity", f"npm installed {installed}, pinned {recipe.integrity}")
    package = _read_json(staging, f"node_modules/{recipe.name}/package.json")
    bins = package.get("bin")
    unscoped = recipe.name.rpartition("/")[2]
    if isinstance(bins, str):
        bins = {unscoped: bins}
    if not isinstance(bins, dict) or not bins:
        raise PackageError("no_recipe", f"{recipe.name} declares no program (`bin`)")
    ours = [name for name in bins if "mcp" in name.lower()]
    candidates = [recipe.entry or "", unscoped, *(bins if len(bins) == 1 else ours)]
    name: str = next((n for n in candidates if n in bins), next(iter(bins)))
    program = os.path.normpath(str(bins[name]))
    if program.startswith(("..", "/")):
        raise PackageError("build_failed", f"the program {program!r} lies outside its package")
    locked = digest({path: about.get("integrity") for path, about in sorted(lock.items())})
    script = f"{SERVER}/node_modules/{recipe.name}/{program}"
    return {"argv": [str(node), script], "env": {}, "placeholders": [], "locked": locked}


def _find_node_headers(node: Path) -> dict[str, str]:
    """Where native parts find the headers, so that they need no download."""
    prefix = node.parent.parent
    has_headers = (prefix / "include" / "node" / "node.h").exists()
    return {"npm_config_nodedir": str(prefix)} if has_headers else {}


def _install_pypi(
    recipe: LaunchRecipe, staging: StagingFolder, workshop: InstallContext
) -> dict[str, Any]:
    toolchain = workshop.toolchain
    hashes = " ".join(f"--hash={value}" for value in (recipe.integrity or "").split())
    lines = (f"{recipe.name}=={recipe.version} {hashes}", *recipe.requirements)
    staging.write_request("request.txt", "".join(f"{line}\n" for line in lines))
    uv, python = str(toolchain.uv), str(toolchain.python_for(recipe.python))
    venv = (uv, "venv", "--quiet", "--relocatable", "--python", python, f"{_INSIDE}/venv")
    install = (
        *(uv, "pip", "install", "--quiet", "--python", f"{_INSIDE}/venv/bin/python"),
        *("--only-binary", ":all:"),
        # No inode of a cache in an artefact: whoever may write the one must not reach the other.
        *("--link-mode", "copy", "-r", f"{FETCH}/request.txt"),
        *(("--exclude-newer", recipe.as_of) if recipe.as_of else ()),
    )
    for argv in (venv, install):
        what = f"uv {argv[1]} {recipe.name}=={recipe.version}"
        _run_installer(what, argv, staging, workshop, _UV_WORDS)
    # Raises PackageError where a build put a link in place of one of its folders.
    tree = staging.tree
    packages = next(iter(match_paths(tree, "venv/lib/python*/site-packages")), Path("venv"))
    try:
        os.close(open_folder(tree, packages))
    except UnreadableFile as error:
        raise PackageError("build_failed", f"its environment is no folder: {error}") from error
    packages = tree / packages
    program = _find_console_script(recipe, packages)
    bin_folder = f"{SERVER}/venv/bin"
    return {
        "argv": [f"{bin_folder}/python", "-m", program.removeprefix("-m ")]
        if program.startswith("-m ")
        else [f"{bin_folder}/{program}"],
        "env": {"VIRTUAL_ENV": f"{SERVER}/venv", "PYTHONDONTWRITEBYTECODE": "1"},
        "placeholders": [],
        "locked": _digest_installed(packages),
    }


def _digest_installed(packages: Path) -> str:
    """Digest of every installed file: a release whose files were exchanged keeps its name and
    number. What the installer itself notes down is left out."""
    digests: dict[str, str] = {}
    try:
        for path in list_files(packages, skip=("__pycache__",)):
            if path.name not in _NOTES and path.suffix != ".pyc":
                with suppress(UnreadableFile), open_file(packages, path) as file:
                    digests[str(path)] = file_digest(file, "sha256").hexdigest()
    except UnreadableFile as error:
        raise PackageError("build_failed", f"a folder of its cannot be read: {error}") from error
    return digest(digests)


def list_installed(tree: Path) -> dict[str, str]:
    """Name -> version of the Python packages of an artefact."""
    names = (info.name for info in match_paths(tree, "venv/lib/python*/site-packages/*.dist-info"))
    pairs = (name.removesuffix(".dist-info").rpartition("-") for name in names)
    return {canonicalize_name(name): version for name, _, version in pairs}


def _find_console_script(recipe: LaunchRecipe, packages: Path) -> str:
    """The console script to start: named by the listing, else like the package, else the only one
    or the first about MCP. A package without scripts is started as a module."""
    names: list[str] = []
    for info in match_paths(packages, "*.dist-info"):
        distribution = re.split(r"-\d", info.name.removesuffix(".dist-info"))[0]
        if canonicalize_name(distribution) == recipe.name:
            parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            with suppress(UnreadableFile), open_file(packages, info / "entry_points.txt") as file:
                parser.read_string(file.read(_MAX_JSON).decode("utf-8", "replace"))
            if parser.has_section("console_scripts"):
                names = list(parser.options("console_scripts"))
    candidates = [recipe.entry, *[n for n in names if canonicalize_name(n) == recipe.name]]
    candidates += names if len(names) == 1 else [name for name in names if "mcp" in name.lower()]
    for name in candidates:
        if name in names and re.fullmatch(r"[\w.\-]+", str(name)):
            return str(name)
    if names:
        return names[0]
    module = recipe.name.replace("-", "_")
    with suppress(UnreadableFile), open_file(packages, f"{module}/__main__.py"):
        return f"-m {module}"
    raise PackageError("no_recipe", f"{recipe.name} declares no program (console script)")


def _install_mcpb(
    recipe: LaunchRecipe, staging: StagingFolder, workshop: InstallContext
) -> dict[str, Any]:
    toolchain = workshop.toolchain
    pinned = read_sha256(recipe.integrity)
    if recipe.integrity and pinned is None:
        raise PackageError("integrity", f"{recipe.integrity[:80]!r} is no digest of a bundle")
    bundle, actual = download(
        str(recipe.url),
        workshop.home / "cache" / "bundles",
        sha256=pinned,
        allow_loopback=workshop.policy.allow_loopback,
    )
    # Into the tree, by a program of ours inside the sandbox.
    bundle.chmod(0o644)  # as root, that program is another user
    program, packed = Path(unpack.__file__).read_text(), "/srv/bundle"
    finished = run_tool(
        (str(workshop.toolchain.python), "-I", "-c", program, packed, _INSIDE),
        staging=staging,
        toolchain=workshop.toolchain,
        policy=replace(workshop.policy, memory_mb=_UNPACK_MB),
        mounts=(SandboxMount(bundle, packed),),
    )
    _check_limits(finished)
    if finished.code != 0:
        raise PackageError("build_failed", finished.output[-240:])
    node = str(toolchain.node) if toolchain.node else None
    return {**read_command(staging.tree, str(toolchain.python), node), "locked": actual}


def _run_installer(
    what: str,
    argv: tuple[str, ...],
    staging: StagingFolder,
    workshop: InstallContext,
    kinds: Mapping[str, str],
    env: Mapping[str, str] | None = None,
) -> None:
    """Raises PackageError, of the first kind whose words the installer said, where it fails."""
    finished = run_tool(
        argv, staging=staging, toolchain=workshop.toolchain, policy=workshop.policy, env=env
    )
    _check_limits(finished)
    if finished.code != 0:
        output = finished.output
        kind = next(
            (kind for kind, words in kinds.items() if compile_pattern(words).search(output)), None
        )
        raise PackageError(kind or "fetch_failed", f"{what}: {output[-240:]}")


def _check_limits(finished: ToolExit) -> None:
    if finished.breach:
        limit = finished.breach
        raise PackageError("fetch_failed", f"{limit.limit} limit in the fetch phase: {limit.found}")


def _read_json(staging: StagingFolder, path: str) -> dict[str, Any]:
    try:
        value = json.loads(read_file(staging.tree, path, _MAX_JSON))
    except (UnreadableFile, ValueError, RecursionError) as error:
        raise PackageError("build_failed", f"no readable {Path(path).name}: {error}") from error
    return value if isinstance(value, dict) else {}


INSTALLERS: dict[str, Callable[[LaunchRecipe, StagingFolder, InstallContext], dict[str, Any]]] = {
    "npm": _install_npm,
    "pypi": _install_pypi,
    "mcpb": _install_mcpb,
}


_MAX_ARTIFACT_MB = 2048


@dataclass(frozen=True)
class InstalledArtifact:
    """An installed server. `argv` and `env` are as seen inside the sandbox, where `tree` lies at
    /srv/server; `locked` is the digest of everything that was installed with it."""

    tree: Path
    argv: tuple[str, ...]
    env: dict[str, str]
    placeholders: tuple[str, ...]
    locked: str
    megabytes: float


def artifact_digest(recipe: LaunchRecipe, toolchain: HostToolchain) -> str:
    """Names the artefact: what is installed and with which runtime, not how it is launched."""
    facts = recipe.model_dump(mode="json", include={"ecosystem", "version", "integrity", "entry"})
    name = None if recipe.ecosystem == "mcpb" and recipe.integrity else recipe.name
    host = toolchain.identity(recipe.ecosystem, recipe.python)
    later = {"as_of": recipe.as_of, "requirements": list(recipe.requirements)}
    later = {name: fact for name, fact in later.items() if fact}
    return digest({**facts, "name": name, "layout": 2, **host, **later})


def ensure_artifact(
    recipe: LaunchRecipe,
    *,
    home: Path,
    toolchain: HostToolchain,
    policy: SandboxPolicy | None = None,
) -> InstalledArtifact:
    """The artefact of a recipe, fetched unless it is there. Raises PackageError."""
    workshop = InstallContext(home, toolchain, fetch_policy(policy))
    try:
        name = artifact_digest(recipe, toolchain)
    except ToolMissing as error:
        raise PackageError("needs_software", str(error)) from error
    folder = home / "artifacts" / name
    if not (folder / MANIFEST).exists():
        _fetch_into(recipe, folder, workshop)
    facts = json.loads((folder / MANIFEST).read_bytes())
    lists = {name: tuple(facts[name]) for name in ("argv", "placeholders")}
    return InstalledArtifact(folder / TREE, **{**facts, **lists})


def _fetch_into(recipe: LaunchRecipe, folder: Path, workshop: InstallContext) -> None:
    try:
        with open_staging(workshop.home) as staging:
            facts = INSTALLERS[recipe.ecosystem](recipe, staging, workshop)
            size = measure_tree(staging.tree) / (1 << 20)
            if size > _MAX_ARTIFACT_MB:
                raise PackageError(
                    "oversize", f"installs {size:.0f} MB, at most {_MAX_ARTIFACT_MB}"
                )
            facts |= {"megabytes": round(size, 1)}
            staging.publish(facts, folder)
    except UnreadableFile as error:
        raise PackageError("oversize", f"what it installs cannot be read: {error}") from error
    except ToolMissing as error:
        raise PackageError("needs_software", str(error)) from error
