"""Commands about contracts: `toolmill contract diff` and `toolmill contract history`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(
    name="contract",
    no_args_is_help=True,
    add_completion=False,
    help="Differences and history of tool contracts.",
)


@app.callback()
def contract() -> None:
    """Differences and history of tool contracts."""


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="a tools/list result, its bare list or one tool")],
    new: Annotated[Path, typer.Argument(help="the same server's later one")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """What changed between two tools/list results. Exit 1 where a change is breaking or
    suspicious."""
    from assets.contracts.tool_diff import diff_files

    report = diff_files(old, new)
    for line in report.left_out:
        print_line(line, err=True)
    print_json(report.answer) if as_json else _print_table(report.answer)
    if report.alarming:
        sys.exit(1)


@app.command()
def history(
    server_id: Annotated[str, typer.Argument(help="as in the snapshots, e.g. npm:@scope/name")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Every contract a server was seen with, and what changed; reads published tables only."""
    from assets.contracts.changes import collect_history
    from orchestration.factories import open_made_warehouse

    report = collect_history(open_made_warehouse(load_settings()).tables, server_id)
    print_json(report) if as_json else _print_history(report)


def _print_history(report: dict[str, Any]) -> None:
    for tool in report["tools"]:
        print_line(tool["tool"])
        for one in tool["contracts"]:
            now = "now" if one["current"] else "   "
            print_line(
                f"  {now} {one['first_seen']} to {one['last_seen']} {one['contract_digest']}"
            )
    for change in report["changes"]:
        print_line(f"{change['run_date']} {change['class']:<10} {change['tool']}: {change['why']}")


def _print_table(answer: dict[str, Any]) -> None:
    for change in answer["changes"]:
        renamed = f" (was {change['renamed_from']})" if change["renamed_from"] else ""
        print_line(f"{change['class']:<10} {change['tool']}{renamed}: {change['why']}")
    print_line(f"{len(answer['changes'])} changed, {answer['same']} the same")
