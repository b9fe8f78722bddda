"""Probing one server by hand: the function behind `toolmill probe`.

Belongs here: reading a target (`npm:NAME[@V]`, `pypi:NAME[==V]`, or a local folder with a command),
launching it with the settings given, and the JSON that is printed.
Does not belong here: printing and exit codes (`orchestration/cli.py`), nightly work (`night.py`).
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, contract_digest
from assets.marketplaces.listing import EnvVar, Listing, Package
from assets.servers.deploy import Deployed, DeployPolicy, deploy
from assets.servers.launch import Launch, Mount
from assets.servers.placeholders import DATA
from assets.servers.probe import ProbeResult, probe
from assets.servers.recipe import Recipe, Unlaunchable, plan_recipe
from assets.servers.resolve import Resolver
from assets.servers.taxonomy import Failure
from assets.servers.toolchain import Toolchain, find_toolchain
from warehouse.effects.ledger import Ledger


class TargetError(ValueError):
    """A target that names nothing to probe; the message says what was expected."""


def probe_target(
    target: str | None,
    policy: DeployPolicy,
    *,
    ledger: Ledger,
    night: str,
    env: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
    directory: Path | None = None,
    command: Sequence[str] = (),
    toolchain: Toolchain | None = None,
) -> dict[str, Any]:
    """Probes a package, or `command` in `directory` (read-only at its own path).

    Returns status (`ok` or a kind of the taxonomy), error_kind, hint, server_id, version, tools,
    contract_digests (name -> digest, null for a tool without a contract), seconds, peak_mb,
    placeholders, stderr_tail, server_info, pages. Nothing is written to a table. Raises TargetError
    and SandboxUnavailable.
    """
    toolchain = toolchain or find_toolchain()
    if directory is not None:
        result = _probe_directory(directory, command, dict(env or {}), policy, toolchain)
        return _answer(f"private:{directory.name}", None, Deployed(result))
    listing = _listing(target or "", dict(env or {}), tuple(args))
    recipe = plan_recipe(listing, Resolver(policy.home, toolchain, ledger, night))
    if isinstance(recipe, Unlaunchable):
        failed = ProbeResult(status="failed", error_kind=recipe.kind, hint=recipe.hint)
        return _answer(recipe.server_id, None, Deployed(failed))
    return _answer(recipe.server_id, recipe, deploy(recipe, policy, toolchain))


def _probe_directory(
    directory: Path,
    command: Sequence[str],
    env: dict[str, str],
    policy: DeployPolicy,
    toolchain: Toolchain,
) -> ProbeResult:
    if not directory.is_dir():
        raise TargetError(f"--dir {directory}: no such folder")
    if not command:
        raise TargetError(
            "--dir needs a command after `--`, like: --dir ./server -- python main.py"
        )
    folder = directory.resolve()
    if os.geteuid() == 0 and folder.stat().st_mode & 0o005 != 0o005:
        raise TargetError(
            f"--dir {folder}: closed to others, so the sandbox's user cannot read it; open it"
            f" (chmod o+rX -R {folder}) and try again"
        )
    runtimes = {"python": str(toolchain.python), "python3": str(toolchain.python)}
    if toolchain.node:
        runtimes["node"] = str(toolchain.node)
    mounts = [Mount.same(path) for path in toolchain.binds]
    launch = Launch(
        argv=(runtimes.get(command[0], command[0]), *command[1:]),
        env=env,
        mounts=(*mounts, Mount.same(folder)),
        cwd=str(folder),
        dirs=(DATA,),
    )
    return probe(launch, policy.sandbox, policy.conversation)


def _listing(target: str, env: dict[str, str], args: tuple[str, ...]) -> Listing:
    found = re.fullmatch(r"npm:(@?[^@\s]+)(?:@(\S+))?|pypi:([^=\s]+)(?:==(\S+))?", target)
    if not found:
        raise TargetError(
            f"{target!r} is no target: expected npm:NAME[@VERSION], pypi:NAME[==VERSION] or --dir"
        )
    npm, npm_version, pypi, pypi_version = found.groups()
    package = (
        Package(type="npm", identifier=npm, version=npm_version)
        if npm
        else Package(type="pypi", identifier=pypi, version=pypi_version)
    )
    return Listing(
        marketplace="by hand",
        native_id=target,
        name=target,
        transport="stdio",
        args=args,
        env=tuple(EnvVar(name=name, default=value) for name, value in sorted(env.items())),
        package=package,
        evidence="command line",
        runnable=True,
    )


def _answer(server_id: str | None, recipe: Recipe | None, deployed: Deployed) -> dict[str, Any]:
    result = deployed.probe
    return {
        "status": result.error_kind or "ok",
        "error_kind": result.error_kind,
        "hint": result.hint,
        "server_id": server_id,
        "version": recipe.version if recipe else None,
        "recipe_digest": recipe.digest if recipe else None,
        "server_info": result.server_info,
        "tools": result.tools,
        "contract_digests": {str(tool.get("name")): _digest(tool) for tool in result.tools},
        "seconds": result.seconds,
        "peak_mb": result.peak_mb,
        "pages": result.pages,
        "placeholders": list(deployed.placeholders),
        "stderr_tail": result.stderr_tail,
    }


def _digest(tool: Mapping[str, Any]) -> str | None:
    try:
        return contract_digest(tool)
    except ContractError:
        return None


def refused(error: Exception) -> dict[str, Any]:
    """The answer when the host has no sandbox: classified like everything else."""
    failure = Failure("policy_denied", str(error))
    return _answer(None, None, Deployed(ProbeResult("failed", failure.kind, failure.hint)))
