"""`toolmill ledger check`, `rebuild`, `repair` and `reconcile`: is what was paid and published
safe, how to make it whole again, and does the provider count the same."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from warehouse.store import Warehouse

app = typer.Typer(
    no_args_is_help=True,
    help="The record of what was paid for: check it, repair it, hold it against a bill.",
)


@app.command()
def check() -> None:
    """Compare database, journal and answers; one JSON object, exit 1 when it needs recovery."""
    from orchestration.factories import open_warehouse
    from warehouse.ledger import recovery

    warehouse = open_warehouse(load_settings())
    path = _require_ledger(warehouse)
    found = recovery.check(path, warehouse.blobs, url=warehouse.ledger_url)
    print_json(found.row())
    if not found.healthy:
        sys.exit(1)


@app.command()
def rebuild() -> None:
    """Make the database anew from journal and database; every paid answer is kept. In a Postgres it
    adds what the journal and a SQLite file here hold."""
    from orchestration.factories import open_warehouse
    from warehouse.ledger import recovery

    warehouse = open_warehouse(load_settings())
    path = _require_ledger(warehouse)
    found = recovery.rebuild_ledger(path, warehouse.blobs, warehouse.ledger_url)
    print_json(found.row())
    if not found.healthy:
        fail(f"ledger {found.ledger}: still not whole after the rebuild: {found.database}", 1)


@app.command()
def repair(
    dry: Annotated[bool, typer.Option("--dry", help="only say what would be repaired")] = False,
) -> None:
    """Take torn lines out of histories, decisions, take-downs and reviews, and put broken or lost
    pointers of tables back to their last whole version; the old files are kept beside."""
    from orchestration.runs.fork_server import silence_warnings

    silence_warnings()
    from orchestration.factories import open_made_warehouse
    from orchestration.runs.nightly import hold_run_lock
    from warehouse.storage.repair import repair_home

    warehouse = open_made_warehouse(load_settings())
    with hold_run_lock(warehouse.state):
        found = repair_home(warehouse.home, dry=dry)
    print_json(found.row())
    if found.lost or (dry and not found.healthy):
        sys.exit(1)


@app.command()
def reconcile(
    files: Annotated[
        list[Path], typer.Argument(help="the provider's exports of usage, of costs, or both")
    ],
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="of the larger figure; more is exit 1")
    ] = 0.01,
    totals: Annotated[
        bool, typer.Option("--totals", help="judge sums over all days, not each day")
    ] = False,
    models: Annotated[list[str] | None, typer.Option("--model", help="only these")] = None,
) -> None:
    """Hold a provider's usage against the ledger, per day and model: tokens, US dollars, the
    difference, and what is unknown here; one JSON object."""
    from orchestration.factories import open_warehouse
    from warehouse.ledger.reconcile import reconcile_usage
    from warehouse.ledger.usage_file import read_usage

    usage = [row for file in files for row in read_usage(file)]
    warehouse = open_warehouse(load_settings())
    _require_ledger(warehouse)
    found = reconcile_usage(warehouse.ledger, usage, tolerance, models or ())
    print_json(found.as_json())
    lines = found.totals if totals else found.days
    if beyond := [line for line in lines if not line.within]:
        first = beyond[0]
        fail(
            f"{len(beyond)} of {len(lines)} lines differ by more than {tolerance:.1%}, e.g."
            f" {first.day} {first.model or 'all models'}: {first.difference}",
            1,
        )


def _require_ledger(warehouse: "Warehouse") -> Path:
    """The ledger's file, or where it would lie beside its journal. Ends the command where there is
    no ledger."""
    path = warehouse.state / "ledger.db"
    if not warehouse.ledger_url and not path.exists() and not path.with_suffix(".journal").exists():
        fail(f"ledger {path}: there is none yet; the first run makes it", 2)
    return path
