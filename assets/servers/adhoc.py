"""Servers that a user names: `toolmill probe` of one, and trust in commands of their own files."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from assets.contracts.canonical import ContractError, contract_digest
from assets.contracts.scan import ScanFinding, scan_list
from assets.marketplaces.adapters.private import list_file_problems, read_files
from assets.marketplaces.listing import PRIVATE, EnvVar, Listing, PackageRef
from assets.marketplaces.policy import CrawlPolicy
from assets.servers.deploy.deploy import DeploymentResult, deploy
from assets.servers.deploy.policy import DeployPolicy, describe_command, digest_confirmed
from assets.servers.probe.failure_kinds import PackageError, ProbeFailure
from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.recipes.recipe import (
    LaunchRecipe,
    ResolvedVersion,
    UnlaunchableServer,
    identify_server,
)
from assets.servers.recipes.recipe_plan import check_command, plan_recipe
from assets.servers.recipes.version_resolver import VersionResolver
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from warehouse.errors import UnusableInput
from warehouse.ledger.ledger import Ledger
from warehouse.network.egress import is_loopback
from warehouse.patterns import compile_pattern

_FIELDS = (  # of a probe's result, as it is
    *("error_kind", "hint", "server_info", "protocol", "capabilities", "tools", "prompts"),
    *("resources", "seconds", "initialize_s", "peak_mb", "pages", "stderr_tail", "refused"),
)


State = Literal["trusted", "changed", "new", "unusable"]


class TargetError(UnusableInput):
    """A target that names nothing to probe; the message says what was expected."""


def probe_target(
    target: str | None,
    policy: DeployPolicy,
    *,
    ledger: Ledger,
    run_date: str,
    env: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
    directory: Path | None = None,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Probes a package, or `command` in `directory` (read-only at its own path).

    Returns what `_answer` says. Nothing is written to a table. Raises TargetError and
    SandboxUnavailable.
    """
    toolchain = find_toolchain()
    if directory is not None:
        local_recipe = _make_local_recipe(directory, command, dict(env or {}))
        result = deploy(local_recipe, _allow_typed(local_recipe, policy), toolchain)
        return _format_answer(f"private:{directory.resolve().name}", None, result)
    listing = _make_listing(target or "", dict(env or {}), tuple(args))
    if listing.url:
        # The typed address may be asked, on this host too.
        here = is_loopback(urlsplit(listing.url).hostname or "")
        remote = replace(policy.remote or RemotePolicy(), allow_loopback=here)
        policy = replace(policy, remote=remote, outside=True)
    recipe = _plan_listing(listing, policy, ledger, run_date, toolchain)
    if isinstance(recipe, UnlaunchableServer):
        failed = ProbeResult(status="failed", error_kind=recipe.kind, hint=recipe.hint)
        return _format_answer(recipe.server_id, None, DeploymentResult(failed))
    if recipe.ecosystem == "remote":
        recipe = recipe.model_copy(update={"transport": "auto"})
    deployed = deploy(recipe, _allow_typed(recipe, policy), toolchain)
    return _format_answer(recipe.server_id, recipe, deployed)


def check_target(
    target: str | None, directory: Path | None = None, command: Sequence[str] = ()
) -> None:
    """Raises TargetError where `probe_target` would, and opens and starts nothing."""
    if directory is None:
        _make_listing(target or "", {}, ())
    else:
        _make_local_recipe(directory, command, {})


def plan_target(
    target: str, policy: DeployPolicy, *, ledger: Ledger, run_date: str
) -> LaunchRecipe | UnlaunchableServer:
    """The recipe of a package (`npm:NAME[@V]`, `pypi:NAME[==V]`), pinned. Raises TargetError."""
    listing = _make_listing(target, {}, ())
    return _plan_listing(listing, policy, ledger, run_date, find_toolchain())


def _plan_listing(
    listing: Listing, policy: DeployPolicy, ledger: Ledger, run_date: str, toolchain: HostToolchain
) -> LaunchRecipe | UnlaunchableServer:
    resolve = VersionResolver(policy.home, toolchain, ledger, run_date, sandbox=policy.sandbox)
    return plan_recipe(listing, resolve)


def _make_local_recipe(
    directory: Path, command: Sequence[str], env: dict[str, str]
) -> LaunchRecipe:
    """How a command of the user's own is launched. Raises TargetError."""
    if not directory.is_dir():
        raise TargetError(f"--dir {directory}: no such folder")
    if not command:
        raise TargetError(
            "--dir needs a command after `--`, like: --dir ./server -- python main.py"
        )
    where = directory.resolve()
    try:
        check_command(str(where), command)
    except PackageError as error:
        raise TargetError(f"--dir {directory}: {error}") from None
    return LaunchRecipe(
        server_id=f"private:{where.name}",
        ecosystem="private",
        name=where.name,
        command=(command[0],),
        args=tuple(command[1:]),
        env=tuple(sorted(env.items())),
        directory=str(where),
    )


def _allow_typed(recipe: LaunchRecipe, policy: DeployPolicy) -> DeployPolicy:
    """The policy under which a recipe is confirmed: who typed it is who would confirm it."""
    return replace(policy, confirmed={recipe.server_id: (digest_confirmed(recipe),)})


def _make_listing(target: str, env: dict[str, str], args: tuple[str, ...]) -> Listing:
    facts: dict[str, Any] = {"marketplace": "ad hoc", "native_id": target, "name": target}
    facts |= {"evidence": "command line", "runnable": True}
    if re.match(r"https?://", target, re.IGNORECASE):
        return Listing(**facts, transport="streamable-http", url=target)
    match = compile_pattern(r"npm:(@?[^@\s]+)(?:@(\S+))?|pypi:([^=\s]+)(?:==(\S+))?").fullmatch(
        target
    )
    if not match:
        raise TargetError(
            f"{target!r} is no target: expected npm:NAME[@VERSION], pypi:NAME[==VERSION],"
            " a URL or --dir"
        )
    pinned = {"identifier": match[1] or match[3], "version": match[2] or match[4]}
    package = PackageRef(type="npm" if match[1] else "pypi", **pinned)
    variables = tuple(EnvVar(name=name, default=value) for name, value in sorted(env.items()))
    return Listing(**facts, transport="stdio", args=args, env=variables, package=package)


def _format_answer(
    server_id: str | None, recipe: LaunchRecipe | None, deployed: DeploymentResult
) -> dict[str, Any]:
    """What `toolmill probe --json` prints: status is `ok` or a kind of the taxonomy; seconds to the
    last page of tools; peak_mb in MiB; contract_digests by name, null for a tool without a usable
    contract; behaviour null where nobody could ask again; certificate null without a sandbox."""
    result = deployed.probe
    digests: dict[str, str | None] = {}
    for tool in result.tools:
        digests[str(tool.get("name"))] = None
        with suppress(ContractError):
            digests[str(tool.get("name"))] = contract_digest(tool)
    return {
        "status": result.error_kind or "ok",
        "server_id": server_id,
        "version": recipe.version if recipe else None,
        "recipe_digest": recipe.digest if recipe else None,
        **{name: getattr(result, name) for name in _FIELDS},
        "contract_digests": digests,
        "resource_templates": result.templates,
        "findings": [finding.as_row() for finding in _list_findings(result)],
        "behaviour": deployed.behaviour,
        "certificate": deployed.certificate,
        "placeholders": list(deployed.placeholders),
    }


def _list_findings(result: ProbeResult) -> list[ScanFinding]:
    from assets.contracts.findings import find_refused
    from assets.contracts.vendor_rules import CLASSIC
    from assets.servers.probe.client_refusals import find_client_refusals

    refusals = find_client_refusals(result.tools, result.protocol, result.faults)
    refused = find_refused(result.tools, result.protocol or CLASSIC)
    return [*scan_list(result.tools), *refused, *refusals]


def describe_refusal(error: Exception) -> dict[str, Any]:
    """The answer when the host has no sandbox: classified like everything else."""
    failure = ProbeFailure("policy_denied", str(error))
    return _format_answer(
        None, None, DeploymentResult(ProbeResult("failed", failure.kind, failure.hint))
    )


class UnknownLocalServer(UnusableInput):
    """A name that no command of the user's own files has, or several have."""


@dataclass(frozen=True)
class LocalServer:
    """One command. shown: what is launched, or why nothing can be. digest: what trusting it writes,
    None where it is unusable."""

    server_id: str
    state: State
    shown: str
    network: str
    digest: str | None


def list_local_servers(files: CrawlPolicy, policy: DeployPolicy) -> list[LocalServer]:
    """What the user's files start that is no package and no address, by server id. A file that
    cannot be read, and an entry that starts nothing, are unusable."""
    by_id = {}
    for problem in list_file_problems(files):
        name = f"{PRIVATE}:{problem['native_id']}"
        by_id[name] = LocalServer(name, "unusable", problem["hint"], "none", None)
    for listing in read_files(files):
        if listing.is_local or not (listing.package or listing.url):
            server = _describe(listing, policy)
            by_id[server.server_id] = server
    return [by_id[name] for name in sorted(by_id)]


def find_local_server(servers: Sequence[LocalServer], name: str) -> LocalServer:
    """The one of a server id, of `FILE#KEY`, or of the only entry with that key. Raises
    NotLocal."""
    matches = [
        server
        for server in servers
        if name in (server.server_id, server.server_id[len("private:") :])
    ]
    matches = matches or [
        server for server in servers if server.server_id.rpartition("#")[2] == name
    ]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(matche.server_id for matche in matches or servers) or "none"
    what = "several commands" if matches else "no command"
    raise UnknownLocalServer(
        f"{name[:200]!r} names {what} of your own files (`marketplaces.private.paths`): {names}"
    )


def plan_local_server(server_id: str, policy: DeployPolicy) -> LaunchRecipe | UnlaunchableServer:
    """The recipe of a command of the files that the policy lists, as they stand now; whether it is
    trusted is asked when it is launched. Raises NotLocal."""
    listings = read_files(CrawlPolicy(base_url="", paths=policy.listed))
    by_server = {str(identify_server(listing)): listing for listing in listings if listing.is_local}
    if server_id not in by_server:
        names = ", ".join(sorted(by_server)) or "none"
        raise UnknownLocalServer(
            f"{server_id[:200]!r} is no command of your own files"
            f" (`marketplaces.private.paths`): {names}"
        )
    return _plan_local(by_server[server_id])


def allow_bound(
    policy: DeployPolicy, trusted_recipe: LaunchRecipe, bound: LaunchRecipe
) -> DeployPolicy:
    """The policy under which a trusted command may be launched with the arguments and variables
    that a world file gives it: whoever named that file in the settings chose them. With a network
    of its own only what was trusted word by word is launched."""
    name = trusted_recipe.server_id
    trusted = policy.confirmed.get(name, ())
    networked = policy.sandbox_of(name).network != "none" or policy.grant_of(name).hosts
    is_trusted = digest_confirmed(trusted_recipe) in trusted
    if trusted_recipe.ecosystem != PRIVATE or networked or not is_trusted:
        return policy
    more = (*trusted, digest_confirmed(bound))
    return replace(policy, confirmed={**policy.confirmed, name: more})


def _plan_local(listing: Listing) -> LaunchRecipe | UnlaunchableServer:
    def refuse_registry(package: PackageRef) -> ResolvedVersion:
        raise AssertionError(f"{package.identifier}: a local server is in no registry")

    return plan_recipe(listing, refuse_registry)


def _describe(listing: Listing, policy: DeployPolicy) -> LocalServer:
    recipe = _plan_local(listing)
    if isinstance(recipe, UnlaunchableServer):
        return LocalServer(listing.listing_id, "unusable", recipe.hint, "none", None)
    name, recipe_digest = recipe.server_id, digest_confirmed(recipe)
    trusted = policy.confirmed.get(name, ())
    state: State = "trusted" if recipe_digest in trusted else "changed" if trusted else "new"
    network = policy.sandbox_of(name).network
    return LocalServer(name, state, describe_command(recipe), network, recipe_digest)
