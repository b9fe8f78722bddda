"""Commands about single servers: `probe`, `trust` and `login`."""

import webbrowser
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from orchestration.cli.terminal import AsJson, fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from assets.servers.deploy.grants import ServerGrant
    from assets.servers.sandbox.spec import SandboxMount

app = typer.Typer()


@app.command()
def probe(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            help="npm:NAME or npm:NAME@VERSION, pypi:NAME or pypi:NAME==VERSION, a URL; with"
            " --dir: -- COMMAND ARGS…"
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="run COMMAND in this folder, read-only")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for the server; several times")
    ] = None,
    network: Annotated[str, typer.Option(help="what it may reach: none or full")] = "none",
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="no second launch, which shows tools that change with client and date"
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run one server in the sandbox, or ask a remote one, and list its tools.

    No table is written. Exit 0 whatever the outcome, which `status` says."""
    words = list(target or [])
    if directory and not as_json and words[-1:] == ["--json"]:
        words, as_json = words[:-1], True  # where most people write it; `--json --json` is theirs
    try:
        report = run_probe(words, directory, env, network, once=once)
    except ValueError as error:
        fail(str(error), 2)
    print_json(report) if as_json else _print_probe(report)


def run_probe(
    words: list[str], directory: Path | None, env: list[str] | None, network: str, *, once: bool
) -> dict[str, Any]:
    """The report on a target, or on the command `words` in a folder. Raises ValueError."""
    from assets.servers.adhoc import check_target, describe_refusal, probe_target
    from assets.servers.deploy.policy import with_network
    from assets.servers.sandbox.process import SandboxUnavailable
    from orchestration.factories import make_launcher, open_warehouse

    chosen = load_settings()
    variables = dict(_parse_pair(text) for text in env or [])
    target, args = ("", []) if directory or not words else (words[0], words[1:])
    command = words if directory else []
    check_target(target, directory, command)  # before the ledger, which makes the home
    try:
        policy = with_network(make_launcher(chosen).policy, network)
        ledger = open_warehouse(chosen).ledger
        try:
            return probe_target(
                target,
                replace(policy, twice=policy.twice and not once),
                ledger=ledger,
                run_date=ledger.open_run("ad hoc"),
                env=variables,
                args=args,
                directory=directory,
                command=command,
            )
        finally:
            ledger.close_run("ad hoc")
    except SandboxUnavailable as error:
        return describe_refusal(error)


def _print_probe(report: dict[str, Any]) -> None:
    print_line(f"{report['status']}  {report['server_id']}  {report['hint'] or ''}".rstrip())
    for tool in report["tools"]:
        print_line(f"  {tool.get('name')}  {str(tool.get('description', ''))[:90]!r}")
    for row in report["findings"]:
        if row["severity"] != "low" or row["rule"] == "refused_by_clients":
            print_line(f"  {row['severity']}: {row['tool']} {row['field']}: {row['excerpt']}")
    for row in report["behaviour"] or ():
        print_line(f"  {row['tool']} {row['change']} with another {row['varied']}")
    if report["placeholders"]:
        print_line(f"  made up: {', '.join(report['placeholders'])}")
    certificate = report["certificate"]
    if certificate:
        outcome = (
            "held" if certificate["passed"] else f"LET OUT {', '.join(certificate['escaped'])}"
        )
        print_line(
            f"  sandbox {certificate['backend']}: {certificate['n']} escapes tried, {outcome}"
        )
        for fix in certificate["fixes"]:
            print_line(f"    {fix}")


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--env {text!r}: expected NAME=VALUE")
    return name, value


_MEANING = (
    "Trusted, it is launched in the sandbox each nightly run and whenever a tool is called:",
    "- it sees its folder, read-only, and of your other files what you grant it;",
    "- what the folder holds may change: whatever it holds then is launched;",
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
    as_json: AsJson = False,
) -> None:
    """Let a command of your own files be launched, or list them all without SERVER.

    It is written as `confirmed` into toolmill.toml."""
    from assets.servers.adhoc import find_local_server, list_local_servers
    from orchestration.factories import make_crawl_policy, make_launcher
    from orchestration.settings.server_changes import write_server_settings

    chosen = load_settings()
    files, policy = make_crawl_policy(chosen, "private"), make_launcher(chosen).policy
    servers = list_local_servers(files, policy)
    if server is None:
        if as_json:
            print_json([asdict(local) for local in servers])
            return
        for local in servers:
            print_line(f"{local.state:<9} {local.server_id}  {local.shown}")
        if not files.paths:
            print_line(_NO_FILES, err=True)
        count = f"{len(servers)} command{'' if len(servers) == 1 else 's'}"
        print_line(f"{count} in your own files (`marketplaces.private.paths`)")
        return
    local = find_local_server(servers, server)
    if local.digest is None:
        fail(f"{local.server_id}: {local.shown}", 1)
    print_line(local.server_id, err=True)
    print_line(f"  {local.shown}", err=True)
    grant = policy.grant_of(local.server_id)
    for line in (*_MEANING, *describe_grant("As granted, it", grant, local.network)):
        print_line(line, err=True)
    if not yes and local.state != "trusted":
        _ask()
    path = write_server_settings(local.server_id, {"confirmed": [local.digest]})
    facts = {"server_id": local.server_id, "confirmed": local.digest, "file": str(path)}
    print_json(facts) if as_json else print_line(f"trusted: {local.server_id} in {path}")


def _ask() -> None:
    try:
        agreed = typer.confirm("Trust it?", err=True)
    except typer.Abort:  # no terminal, or Ctrl-C
        fail("\nnot trusted, nothing is written: no answer (--yes: without being asked)", 1)
    if not agreed:
        fail("not trusted, nothing is written", 1)


def describe_grant(server: str, grant: "ServerGrant", network: str) -> list[str]:
    lines = [_describe_folder(mount) for mount in grant.folders]
    if network == "full":
        lines.append("reach every host, services of this machine and its private networks included")
    elif grant.hosts:
        lines.append(f"send to and hear from {', '.join(grant.hosts)}, and no other host")
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
    return described


def _describe_folder(mount: "SandboxMount") -> str:
    can = "read, change and delete" if mount.writable else "read"
    return f"{can} every file below {mount.host}, which it sees as {mount.inside}"


@app.command()
def login(
    url: Annotated[str, typer.Argument(help="of the remote MCP server")],
    client_id: Annotated[
        str | None, typer.Option(help="of a client you registered; default: register one")
    ] = None,
    client_secret_from: Annotated[
        str | None, typer.Option(help="where its secret is: env:NAME or file:PATH")
    ] = None,
    issuer: Annotated[
        str | None, typer.Option(help="the only authorization server that client may be shown to")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of the callback on loopback; 0: any")
    ] = 0,
    forget: Annotated[
        bool, typer.Option("--forget", help="forget the login; the server is not told")
    ] = False,
) -> None:
    """Log in to a remote server that asks for OAuth, or forget that login.

    Nightly probes renew it by themselves."""
    from assets.servers.oauth_login import OAuthChoice, TokenStore, log_in

    def show(address: str) -> None:
        print_line("open in a browser to log in:", err=True)
        print_line(address, err=True)
        webbrowser.open(address)  # as the variable BROWSER says, where it is set

    server_id, state = _parse_server_id(url), load_settings().state_path()
    if forget:
        print_json({"server_id": server_id, "forgotten": TokenStore(state, server_id).forget()})
        return
    choice = OAuthChoice(client_id, client_secret_from, issuer)
    if client_secret_from and not client_id:
        fail("--client-secret-from needs --client-id", 2)
    try:
        report = log_in(url, server_id, state, show=show, choice=choice, port=port)
    except OSError as error:
        fail(f"port {port} or {state}: {error.strerror or error}", 1)
    print_json(report)
    if report["status"] != "ok":
        raise typer.Exit(1)


def _parse_server_id(url: str) -> str:
    from assets.servers.recipes.recipe import normalise_address

    try:
        url_parts = urlsplit(url)
        usable = (
            url_parts.scheme in ("http", "https")
            and bool(url_parts.hostname)
            and url_parts.port != 0
        )
    except ValueError:
        usable = False
    if not usable:
        fail(f"{url!r}: expected the http(s) address of a remote server", 2)
    return f"remote:{normalise_address(url)}"
