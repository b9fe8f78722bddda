"""`toolmill ledger check` and `rebuild`: is what was paid safe, and how to make its ledger anew."""

import sys
from pathlib import Path

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

app = typer.Typer(no_args_is_help=True, help="Look at the ledger of effects, or make it anew.")


@app.command()
def check() -> None:
    """Compare database, journal and answers; one JSON object, exit 1 when it needs recovery."""
    from orchestration.resources import open_warehouse
    from warehouse.ledger import recovery

    warehouse = open_warehouse(load_settings())
    path = _ledger_path(warehouse.state)
    found = recovery.check(path, warehouse.blobs)
    print_json(found.row())
    if not found.healthy:
        sys.exit(1)


@app.command()
def rebuild() -> None:
    """Make the database anew from journal and database; every paid answer is kept."""
    from orchestration.resources import open_warehouse
    from warehouse.ledger import recovery

    warehouse = open_warehouse(load_settings())
    path = warehouse.state / "ledger.db"
    found = recovery.rebuild_ledger(path, warehouse.blobs)
    print_json(found.row())
    if not found.healthy:
        fail(f"ledger {path}: still not whole after the rebuild: {found.database}", 1)


def _ledger_path(state: Path) -> Path:
    """The ledger's file. Ends the command where there is none."""
    path = state / "ledger.db"
    if not path.exists() and not path.with_suffix(".journal").exists():
        fail(f"ledger {path}: there is none yet; the first run makes it", 1)
    return path
