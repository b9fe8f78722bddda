"""The command `batch`: what lies at a Batch API, and the outcome of each batch."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import AsJson, fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from warehouse.ledger.batch_records import BatchRecord

app = typer.Typer(rich_help_panel="Effects")
_SHOWN = (
    *("name", "state", "status", "stage", "partition", "role", "model", "requests", "answered"),
    *("failed", "unknown", "ignored", "usd", "opened_at", "batch_id", "problem"),
)


@app.command()
def batch(
    names: Annotated[list[str] | None, typer.Argument(help="only these; default: all open")] = None,
    harvest: Annotated[
        bool, typer.Option("--harvest", help="advance each: send, poll once, keep what has come")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="ask the provider to end the named ones")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="--cancel: wait for nothing; it may have been paid")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List requests that a Batch API answers, advance them (--harvest), or --cancel NAME.

    After --cancel, --harvest keeps what was answered until then. Exit 1 where something keeps a
    batch back."""
    from extensions.batch.batch_ledger import BatchLedger
    from extensions.batch.harvest import advance_open, cancel_open, list_open
    from warehouse.ledger.batch_records import OPEN

    if (harvest and cancel) or (give_up and not cancel) or (cancel and not names):
        fail("give --harvest, or --cancel with names (and --give-up)", 2)
    from orchestration.factories import make_writer, open_made_warehouse

    settings = load_settings()
    roles = {role.name: role for role in make_writer(settings).roles}
    ledger = open_made_warehouse(settings).ledger
    if cancel:
        ended = [cancel_open(ledger, roles, name, give_up=give_up) for name in names or ()]
        _print_batches(ended, as_json)
        return
    if not harvest:
        listed = BatchLedger(ledger).find(*(() if names else OPEN))
        _print_batches([item for item in listed if not names or item.name in names], as_json)
        return
    open_names = [item.name for item in list_open(ledger)]
    for name in names or ():
        if name not in open_names:
            fail(f"batch {name[:60]!r} is not open; open: {', '.join(open_names) or 'none'}", 2)
    advanced = advance_open(ledger, roles, names or None)
    _print_batches(advanced, as_json)
    if any(item.answered for item in advanced if item.state not in OPEN) and not as_json:
        print_line("`toolmill run` goes on with the answers", err=True)
    if any(item.problem for item in advanced):
        sys.exit(1)


def _print_batches(batches: "list[BatchRecord]", as_json: bool) -> None:
    if as_json:
        print_json([{name: getattr(batch, name) for name in _SHOWN} for batch in batches])
        return
    for batch in batches:
        hours = (time.time() - batch.opened_at) / 3600
        columns = [
            f"{batch.name}  {batch.state}{f' ({batch.status})' if batch.status else ''}",
            f"{batch.stage} of {batch.partition}, {batch.role}, {batch.requests} requests,"
            f" {hours:.1f} h",
        ]
        if batch.answered or batch.failed or batch.unknown:
            columns.append(
                f"{batch.answered} answered, {batch.failed} failed, {batch.unknown} unknown,"
                f" {batch.usd:.4f} USD"
            )
        print_line("  ".join(columns))
        if batch.problem:
            print_line(f"    {batch.problem}")
    print_line(f"{len(batches)} batches")
