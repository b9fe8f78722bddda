"""The commands `toolmill log`: what the log of calls remembers, and deleting from it."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from assets.servers.calls.log import CallLog

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The log of calls and searches.")

Place = Annotated[Path | None, typer.Option(help="as of `serve`; default: the data folder")]
JSON = typer.Option("--json", help="one JSON value")


@app.callback()
def log() -> None:
    """What is remembered of calls and searches, and deleting from it."""


@app.command("list")
def list_remembered(place: Place = None, as_json: Annotated[bool, JSON] = False) -> None:
    """How much is remembered under each token's name, and since when."""
    from assets.servers.calls.log import count_lines

    rows = count_lines(_open_log(place))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        summary = f"{row['lines']} lines, {row['searches']} searches, {row['queries']} queries kept"
        print_line(f"{row['token'] or '-'}  {summary}, {row['first']} to {row['last']}")
    print_line(f"{len(rows)} tokens")


@app.command()
def delete(
    token: Annotated[str | None, typer.Option(help="lines under this token's name")] = None,
    client: Annotated[str | None, typer.Option(help="lines of this client: `name version`")] = None,
    query: Annotated[str | None, typer.Option(help="lines of this query, in its words")] = None,
    before: Annotated[str | None, typer.Option(help="lines of the days before YYYY-MM-DD")] = None,
    place: Place = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Delete lines for good; of several options all must hold. A server may go on running."""
    from assets.servers.calls.log import DeletionSubject, remove_lines

    try:
        day = None if before is None else date.fromisoformat(before)
    except ValueError:
        fail(f"--before {str(before)[:40]!r}: expected YYYY-MM-DD", 2)
    subject = DeletionSubject(token, client, query, day)
    counts = remove_lines(_open_log(place), subject)
    if as_json:
        print_json(counts)
        return
    print_line(f"deleted {counts['deleted']} lines of {counts['files']} files")
    if counts["unreadable"]:
        print_line(f"and {counts['unreadable']} that were cut short, whoever's they were")


def _open_log(place: Path | None) -> "CallLog":
    from assets.servers.calls.log import CallLog

    where = place or load_settings().home_path()
    if not where.is_dir():
        fail(f"{where}: no such folder", 2)
    return CallLog(where)
