"""`toolmill ledger check`, `rebuild` and `repair`: is what was paid and published safe, and how to
make it whole again."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

app = typer.Typer(no_args_is_help=True, help="Look at the ledger of effects, or make it anew.")


@app.command()
def check() -> None:
    """Compare database, journal and answers; one JSON object, exit 1 when it needs recovery."""
    from orchestration.factories import open_warehouse
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
    from orchestration.factories import open_warehouse
    from warehouse.ledger import recovery

    warehouse = open_warehouse(load_settings())
    path = warehouse.state / "ledger.db"
    found = recovery.rebuild_ledger(path, warehouse.blobs)
    print_json(found.row())
    if not found.healthy:
        fail(f"ledger {path}: still not whole after the rebuild: {found.database}", 1)


@app.command()
def repair(
    dry: Annotated[bool, typer.Option("--dry", help="only say what would be repaired")] = False,
) -> None:
    """Take torn lines out of histories, decisions, reviews and outcomes, and put broken pointers of
    tables back to their last whole version; the old files are kept beside."""
    from orchestration.factories import open_warehouse
    from orchestration.runs.nightly import hold_run_lock
    from warehouse.storage.repair import repair_home

    warehouse = open_warehouse(load_settings())
    with hold_run_lock(warehouse.state):
        found = repair_home(warehouse.home, dry=dry)
    print_json(found.row())
    if found.lost or (dry and not found.healthy):
        sys.exit(1)


def _ledger_path(state: Path) -> Path:
    """The ledger's file. Ends the command where there is none."""
    path = state / "ledger.db"
    if not path.exists() and not path.with_suffix(".journal").exists():
        fail(f"ledger {path}: there is none yet; the first run makes it", 1)
    return path
