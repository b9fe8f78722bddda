"""The command `toolmill grant`: what one server may reach beyond its sandbox."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings, config_path

if TYPE_CHECKING:
    from assets.servers.deploy.grants import ServerGrant
    from assets.servers.sandbox.spec import SandboxMount
    from orchestration.settings.grant_change import GrantChange

app = typer.Typer(add_completion=False)


@app.command()
def grant(
    server: Annotated[str, typer.Argument(help="its id, as npm:@scope/name")],
    folder: Annotated[
        list[str] | None, typer.Option("--folder", help="PATH to read, PATH:rw to write")
    ] = None,
    host: Annotated[list[str] | None, typer.Option("--host", help="NAME or NAME:PORT")] = None,
    network: Annotated[str | None, typer.Option(help="none or full")] = None,
    volume: Annotated[
        bool, typer.Option("--volume", help="keep what it writes to its home folder")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="take back what is named, or all of it")
    ] = False,
    unlisted: Annotated[
        bool, typer.Option("--unlisted", help="grant it although no run has listed it")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Write into toolmill.toml what a server may reach, and say what that means; without options,
    say what it may reach now. Nightly runs, `probe` and calls obey it."""
    from orchestration.settings.edit import change_server_settings
    from orchestration.settings.grant_change import GrantChange

    if network not in (None, "none", "full"):
        fail(f"--network {network!r:.40}: expected none or full", 2)
    chosen = load_settings()
    before = chosen.servers.get(server)
    wanted: Any = network
    change = GrantChange(folder or (), host or (), wanted, volume, revoke, Path.cwd())
    if not revoke:
        _require_listed(server, chosen, unlisted)
    if revoke or not change.is_empty:
        change_server_settings(server, partial(_decide_block, server, change, chosen))
        chosen = load_settings()
    _print_grant(server, chosen, as_json)
    if revoke or not change.is_empty:
        _print_change(chosen.servers.get(server) != before)


def _print_change(changed: bool) -> None:
    if not changed:
        print_line(f"{config_path()} stays as it was: this changes nothing", err=True)
        return
    advice = "nightly runs launch it anew; a `toolmill serve` that is running keeps the old one"
    print_line(f"written to {config_path()}: {advice}", err=True)


def _require_listed(server: str, chosen: Settings, unlisted: bool) -> None:
    """Ends the command for an id that no run knows, with the one that was likely meant."""
    import difflib
    import re

    known = {*chosen.servers, *_list_servers(chosen)}
    if server in known:
        return
    near = [name for name in sorted(known) if re.split(r"[:/#]", name)[-1] == server]
    near = near or difflib.get_close_matches(server, sorted(known), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "`toolmill run` lists servers"
    if not unlisted:
        fail(f"{server!r:.200}: no run has listed it; {hint} (--unlisted grants it anyway)", 2)
    kind, colon, name = server.partition(":")
    if not (colon and name) or kind not in ("npm", "pypi", "mcpb", "oci", "private"):
        expected = "npm:NAME, pypi:NAME, mcpb:URL, oci:IMAGE or private:FILE#KEY"
        fail(f"{server!r:.200} is no server id: expected {expected}", 2)


def _list_servers(chosen: Settings) -> list[str]:
    """The ids that the last runs had rows for; none before the first run."""
    from warehouse.home import HomeUnavailable

    try:
        from assets.servers.deploy.deployment_table import DEPLOYMENTS
        from orchestration.factories import open_made_warehouse

        return open_made_warehouse(chosen).tables.read(DEPLOYMENTS)["server_id"].to_list()
    except HomeUnavailable:
        return []
    except ModuleNotFoundError:  # installed to serve alone: no tables here
        return []


def _decide_block(
    server: str, change: "GrantChange", chosen: Settings, block: Mapping[str, Any]
) -> dict[str, Any]:
    """What the server's block is to hold. Raises GrantRefused for what this kind of server cannot
    be given, or what the disk does not hold."""
    from assets.servers.deploy.grants import ServerGrant, find_grant_problem, mount_folders
    from orchestration.settings.deploy_policy import list_own_paths
    from orchestration.settings.grant_change import GrantRefused, change_block

    made = change_block(block, change)
    if change.revoke:
        return made
    try:
        grant = ServerGrant(folders=mount_folders(made["folders"] or ()), personal=True)
    except ValueError as error:
        raise GrantRefused(str(error)) from None
    problem = find_grant_problem(grant, list_own_paths(chosen))
    if server.startswith("remote:"):
        problem = f"{server} runs elsewhere: nothing of this host is granted to it, or held"
    elif server.startswith("oci:") and made["hosts"]:
        problem = f"{server}: an image is held to no hosts; --network full gives it all of them"
    if problem:
        raise GrantRefused(problem)
    return made


def _print_grant(server: str, chosen: Settings, as_json: bool) -> None:
    from assets.servers.deploy.grants import ServerGrant
    from orchestration.settings.deploy_policy import find_volume, make_grant

    block = chosen.servers.get(server)
    grant = make_grant(block) if block else ServerGrant()
    kept = find_volume(chosen, server)
    network = grant.network or ("none" if grant.hosts else chosen.sandbox.network)
    if as_json:
        folders = [
            {"path": str(folder.host), "inside": folder.inside, "writable": folder.writable}
            for folder in grant.folders
        ]
        facts = {"server_id": server, "network": network, "hosts": list(grant.hosts)}
        volume = str(kept) if grant.volume else None
        print_json({**facts, "folders": folders, "volume": volume, "file": str(config_path())})
        return
    for line in describe_grant(server, grant, network, kept):
        print_line(line)


def describe_grant(server: str, grant: "ServerGrant", network: str, kept: Path) -> list[str]:
    """What a grant means, in plain words. kept: where its volume lies, or lay."""
    lines = [_describe_folder(mount) for mount in grant.folders]
    if network == "full":
        lines.append("reach every host, services of this machine and its private networks included")
    elif grant.hosts:
        lines.append(f"send to and hear from {', '.join(grant.hosts)}, and no other host")
    if grant.volume:
        lines.append(f"keep its home between sessions, in {kept}, for all who may call it")
    if not lines:
        lines.append("reach nothing beyond its sandbox")
    described = [f"{server} may", *(f"  {line}" for line in lines)]
    if grant.folders:
        sent = (
            ", and it can send them to what it reaches" if network == "full" or grant.hosts else ""
        )
        described.append(f"Text of these files can be in its answers, which models read{sent}.")
    if any(mount.writable for mount in grant.folders):
        described.append(
            "What it writes there is third-party: links, scripts and hooks among it are followed or"
            " run by your programs, outside of the sandbox."
        )
    if not grant.volume and kept.exists():
        described.append(f"What it kept earlier is still in {kept}: delete it with rm -r.")
    return described


def _describe_folder(mount: "SandboxMount") -> str:
    can = "read, change and delete" if mount.writable else "read"
    return f"{can} every file below {mount.host}, which it sees as {mount.inside}"
