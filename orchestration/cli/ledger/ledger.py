"""`toolmill ledger repair`: puts torn histories and broken pointers of tables right."""

import sys
from typing import Annotated

import typer

from orchestration.cli.terminal import print_json
from orchestration.settings.load import load_settings

app = typer.Typer(
    no_args_is_help=True, help="Repair what killed writers and full disks left of a home."
)


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
