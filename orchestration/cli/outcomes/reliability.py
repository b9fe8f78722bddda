"""The commands `toolmill reliability`: how often tools work, and whose word on that counts."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from assets.outcomes.reliability.measure import ReliabilityRefresh

_SHOWN = 40
JSON = typer.Option("--json", help="one JSON value")
SOURCE = typer.Argument(help="token:NAME, or execution")
BY = typer.Option("--by", help="who decides")
WHY = typer.Option("--why", help="what was seen of it")


class ShowByDefault(TyperGroup):
    """`toolmill reliability TOOL` is `toolmill reliability show TOOL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=ShowByDefault, add_completion=False, help="How often tools work.")


@app.callback()
def reliability() -> None:
    """How often each version of a tool works, by the calls that really ran and what was reported;
    `toolmill reliability TOOL` shows one."""


@app.command()
def show(
    tool: Annotated[str | None, typer.Argument(help="a tool id, or part of it")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Tools as the last run left them, the least reliable first."""
    from assets.contracts.tool_id import ToolId
    from assets.outcomes.reliability.table import RELIABILITY
    from orchestration.factories import open_made_warehouse

    rows = open_made_warehouse(load_settings()).tables.read(RELIABILITY).to_dicts()
    found = [
        {"tool_id": str(ToolId.of_row(row)), **row}
        for row in rows
        if (row["current"] or row["calls"]) and (not tool or tool in str(ToolId.of_row(row)))
    ]
    if tool and not found:
        fix = "`toolmill search` finds ids; a run, then `toolmill reliability`, knows its tools"
        fail(f"{tool[:120]!r}: none of {len(rows)} versions of tools; {fix}", 2)
    found.sort(key=lambda row: (row["mean"], -row["n"], row["tool_id"]))
    if as_json:
        print_json(found)
        return
    for row in found[:_SHOWN]:
        old = "" if row["current"] else "  [older contract]"
        failed = f"  failures {row['failures']}" if row["failed"] else ""
        interval = f"{row['low']:.2f} to {row['high']:.2f}"
        works = f"{row['mean']:.2f} ({interval}), n {row['n']:g}, prior {row['prior']:.2f}"
        print_line(f"{row['tool_id']}{old}  {works}{failed}")
    if len(found) > _SHOWN:
        print_line(f"{len(found) - _SHOWN} more; --json shows all")


@app.command()
def refresh(as_json: Annotated[bool, JSON] = False) -> None:
    """Weigh executions and the log of calls anew; running routers tell it at their next query."""
    _print_refreshed(_update_overlay(), as_json)


@app.command()
def exclude(
    source: Annotated[str, SOURCE],
    by: Annotated[str, BY],
    why: Annotated[str, WHY],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Leave out all that a source says; `include` takes it back as it was."""
    _decide(source, "excluded", by, why, as_json)


@app.command()
def include(
    source: Annotated[str, SOURCE],
    by: Annotated[str, BY],
    why: Annotated[str, WHY],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Count again what an excluded source says."""
    _decide(source, "included", by, why, as_json)


def _decide(source: str, verdict: str, by: str, why: str, as_json: bool) -> None:
    from assets.outcomes.policy import SourceDecision, SourceDecisionError, record_source_decision
    from orchestration.factories import open_made_warehouse

    at = datetime.now(UTC).isoformat(timespec="seconds")
    home = open_made_warehouse(load_settings()).home
    try:
        record_source_decision(home, SourceDecision(source, verdict, by, why, at))
    except SourceDecisionError as error:
        fail(str(error), 2)
    _print_refreshed(_update_overlay(), as_json)


def _update_overlay() -> "ReliabilityRefresh":
    from assets.outcomes.reliability.measure import update_overlay
    from orchestration.factories import open_made_warehouse

    settings = load_settings()
    return update_overlay(open_made_warehouse(settings), settings.reliability)


def _print_refreshed(found: "ReliabilityRefresh", as_json: bool) -> None:
    counts = {"sources": found.sources, "left_out": {k: n for k, n in found.left_out.items() if n}}
    if as_json:
        print_json({"versions": len(found.measured.rows), **counts})
        return
    for source, n in found.sources.items():
        print_line(f"{source}  {n} observations")
    for why, n in counts["left_out"].items():
        print_line(f"not counted, or less: {n} {why}")
    print_line(f"{len(found.measured.rows)} versions of tools; searches tell it from now on")
