"""The command `toolmill trust`: what of your own files may be launched."""

from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)

_MEANING = (
    "Trusted, it is launched in the sandbox every night and whenever one of its tools is called:",
    "- its folder is read-only to it, and it sees no other file of yours that is not granted;",
    "- what the folder holds may change: whatever it holds then is launched;",
    "- another command, folder, argument or name of a variable asks you again.",
)


@app.command()
def trust(
    server: Annotated[
        str | None, typer.Argument(help="as it is listed, or its name in the file alone")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Let a command of your own files be launched; without SERVER, list them all. It is written as
    `confirmed` into toolmill.toml."""
    from dataclasses import asdict

    from assets.servers.trust import find_local_server, list_local_servers
    from orchestration.cli.servers.grant import describe_grant
    from orchestration.factories import make_crawl_policy, make_launcher
    from orchestration.settings.deploy_policy import find_volume
    from orchestration.settings.edit import write_server_settings

    chosen = load_settings()
    files, policy = make_crawl_policy(chosen, "private"), make_launcher(chosen).policy
    servers = list_local_servers(files, policy)
    if server is None:
        if as_json:
            print_json([asdict(one) for one in servers])
            return
        for one in servers:
            print_line(f"{one.state:<9} {one.server_id}  {one.shown}")
        print_line(f"{len(servers)} commands in your own files (`marketplaces.private.paths`)")
        return
    found = find_local_server(servers, server)
    if found.digest is None:
        fail(f"{found.server_id}: {found.shown}", 1)
    print_line(found.server_id, err=True)
    print_line(f"  {found.shown}", err=True)
    grant, kept = policy.grant_of(found.server_id), find_volume(chosen, found.server_id)
    for line in (*_MEANING, *describe_grant("Besides, it", grant, found.network, kept)):
        print_line(line, err=True)
    if not yes and found.state != "trusted":
        typer.confirm("Trust it?", abort=True, err=True)
    path = write_server_settings(found.server_id, {"confirmed": [found.digest]})
    facts = {"server_id": found.server_id, "confirmed": found.digest, "file": str(path)}
    print_json(facts) if as_json else print_line(f"trusted: {found.server_id} in {path}")
