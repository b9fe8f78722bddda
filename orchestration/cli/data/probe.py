"""The command `toolmill probe`: one server, ad hoc."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


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
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Run one server in the sandbox, or ask one elsewhere, and list its tools; nothing is written
    to a table. Exit 0 whatever came of it: `status` says what did."""
    given = list(target or [])
    if directory and not as_json and given[-1:] == ["--json"]:
        given, as_json = given[:-1], True  # where most people write it; `--json --json` is theirs
    try:
        found = run_probe(given, directory, env, network, once=once)
    except ValueError as error:
        fail(str(error), 2)
    print_json(found) if as_json else _print_probe(found)


def run_probe(
    given: list[str], directory: Path | None, env: list[str] | None, network: str, *, once: bool
) -> dict[str, Any]:
    """What `assets.servers.adhoc.probe_target` says of a target and its arguments, or of the
    command `given` in a folder, by the settings. Raises ValueError where nothing is named."""
    from dataclasses import replace

    from assets.servers.adhoc import check_target, describe_refusal, probe_target
    from assets.servers.deploy.policy import with_network
    from assets.servers.sandbox.process import SandboxUnavailable
    from orchestration.factories import make_launcher, open_warehouse

    chosen = load_settings()
    variables = dict(_parse_pair(text) for text in env or [])
    target, args = ("", []) if directory or not given else (given[0], given[1:])
    command = given if directory else []
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


def _print_probe(found: dict[str, Any]) -> None:
    print_line(f"{found['status']}  {found['server_id']}  {found['hint'] or ''}".rstrip())
    for tool in found["tools"]:
        print_line(f"  {tool.get('name')}  {str(tool.get('description', ''))[:90]!r}")
    for one in found["findings"]:
        if one["severity"] != "low":
            print_line(f"  {one['severity']}: {one['tool']} {one['field']}: {one['excerpt']}")
    for one in found["behaviour"] or ():
        print_line(f"  {one['tool']} {one['change']} with another {one['varied']}")
    if found["placeholders"]:
        print_line(f"  made up: {', '.join(found['placeholders'])}")
    certificate = found["certificate"]
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
