"""The commands `toolmill batch`: what lies at a Batch API, and the outcome of each batch."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from warehouse.ledger.batch_records import BatchRecord
    from warehouse.ledger.ledger import Ledger
    from warehouse.llm.roles import Role

app = typer.Typer(rich_help_panel="Effects")
_batch = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Model requests that are answered by batch."
)
app.add_typer(_batch, name="batch")
JSON = typer.Option("--json", help="one JSON value")
_SHOWN = (
    *("name", "state", "status", "stage", "partition", "role", "model", "requests", "answered"),
    *("failed", "unknown", "ignored", "usd", "opened_at", "batch_id", "problem"),
)


@_batch.command("list")
def list_all(
    everything: Annotated[bool, typer.Option("--all", help="ended ones too")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """List open batches: how far each is, since when, and what keeps it back."""
    from warehouse.ledger.batch_records import OPEN

    ledger, _ = _open_ledger()
    _print_batches(ledger.batches.find(*(() if everything else OPEN)), as_json)


@_batch.command()
def harvest(
    names: Annotated[list[str] | None, typer.Argument(help="only these; default: all")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Send what was kept back, poll the rest once, and keep every answer that has come. Exit 1
    where something keeps one back."""
    from extensions.batch.harvest import advance_open, list_open
    from warehouse.ledger.batch_records import OPEN

    ledger, roles = _open_ledger()
    open_names = [batch.name for batch in list_open(ledger)]
    for name in names or ():
        if name not in open_names:
            fail(f"batch {name[:60]!r} is not open; open: {', '.join(open_names) or 'none'}", 2)
    advanced = advance_open(ledger, roles, names or None)
    _print_batches(advanced, as_json)
    if any(batch.answered for batch in advanced if batch.state not in OPEN) and not as_json:
        print_line("`toolmill run` goes on with the answers", err=True)
    if any(batch.problem for batch in advanced):
        sys.exit(1)


@_batch.command()
def cancel(
    name: Annotated[str, typer.Argument(help="as `toolmill batch list` prints it")],
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="wait for nothing: what is under way may have been paid"),
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Ask the provider to end a batch; `harvest` keeps what it answered until then."""
    from extensions.batch.harvest import cancel_open

    ledger, roles = _open_ledger()
    _print_batches([cancel_open(ledger, roles, name, give_up=give_up)], as_json)


def _open_ledger() -> "tuple[Ledger, dict[str, Role]]":
    from orchestration.factories import make_writer, open_made_warehouse

    settings = load_settings()
    roles = {role.name: role for role in make_writer(settings).roles}
    return open_made_warehouse(settings).ledger, roles


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
