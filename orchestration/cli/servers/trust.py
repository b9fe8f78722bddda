"""The command `toolmill trust`: what of your own files may be launched."""

from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)

_MEANING = (
    "Trusted, it is launched in the sandbox each nightly run and whenever a tool is called:",
    "- it sees its folder, read-only, or its image, and of your other files what you grant it;",
    "- what the folder or image holds may change: whatever it holds then is launched;",
    "- another command, folder, argument or name of a variable asks you again.",
)
_NO_FILES = (
    "no file is named: list your mcpServers files in toolmill.toml, as"
    ' `[marketplaces.private]` with `paths = ["~/.cursor/mcp.json"]`'
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

    from assets.servers.adhoc import find_local_server, list_local_servers
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
        if not files.paths:
            print_line(_NO_FILES, err=True)
        count = f"{len(servers)} command{'' if len(servers) == 1 else 's'}"
        print_line(f"{count} in your own files (`marketplaces.private.paths`)")
        return
    found = find_local_server(servers, server)
    if found.digest is None:
        fail(f"{found.server_id}: {found.shown}", 1)
    print_line(found.server_id, err=True)
    print_line(f"  {found.shown}", err=True)
    grant, kept = policy.grant_of(found.server_id), find_volume(chosen, found.server_id)
    for line in (*_MEANING, *describe_grant("As granted, it", grant, found.network, kept)):
        print_line(line, err=True)
    if not yes and found.state != "trusted":
        _ask()
    path = write_server_settings(found.server_id, {"confirmed": [found.digest]})
    facts = {"server_id": found.server_id, "confirmed": found.digest, "file": str(path)}
    print_json(facts) if as_json else print_line(f"trusted: {found.server_id} in {path}")


def _ask() -> None:
    """Ends the command unless the user agrees."""
    try:
        agreed = typer.confirm("Trust it?", err=True)
    except typer.Abort:  # no terminal, or Ctrl-C
        fail("\nnot trusted, nothing is written: no answer (--yes: without being asked)", 1)
    if not agreed:
        fail("not trusted, nothing is written", 1)
