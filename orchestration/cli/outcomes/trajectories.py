"""The command `toolmill trajectories`: tasks of worlds carried out by real servers, and kept."""

import sys
from typing import Annotated

import typer

from orchestration.cli.terminal import print_json, report_lines, require_known
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


@app.command()
def trajectories(
    name: Annotated[str | None, typer.Argument(help="one world; default: all")] = None,
    server: Annotated[list[str] | None, typer.Option(help="only these servers, by id")] = None,
    seed: Annotated[int, typer.Option(help="decides first states and tasks")] = 1,
    tasks: Annotated[int, typer.Option(min=1, max=100, help="of each kind")] = 1,
) -> None:
    """Carry out the tasks of worlds with the servers that suit them, and keep what ended right: to
    export (`--tasks trajectory`) and to learn from (`training.split.trajectories`). Exit 1 where
    nothing was kept."""
    import asyncio

    from assets.outcomes.trajectory_play import (
        Collected,
        collect_trajectories,
        publish_trajectories,
    )
    from assets.outcomes.worlds.catalogue import find_world, list_worlds
    from orchestration.factories import make_launcher, open_warehouse

    settings = load_settings()
    if name:
        chosen = [find_world(name, settings.worlds.paths)]
    else:
        known = list_worlds(settings.worlds.paths)
        chosen = [one.world for one in known if one.world and not one.problem]
    require_known("--server", server, sorted({fit.id for one in chosen for fit in one.servers}))
    policy, warehouse = make_launcher(settings).policy, open_warehouse(settings)
    run_date = warehouse.ledger.open_run("trajectories")
    made, kept = Collected(), 0
    try:
        asyncio.run(
            collect_trajectories(
                made, chosen, policy, warehouse.ledger, run_date, report_lines(),
                servers=server or (), seed=seed, n=tasks,
            )
        )  # fmt: skip
    finally:  # what was played until something went wrong is kept
        warehouse.ledger.close_run("trajectories")
        if made.made:
            kept = publish_trajectories(warehouse.tables, made.made, run_date)
    print_json({**made.get_figures(), "kept_in_all": kept})
    if not made.get_figures()["kept"]:
        sys.exit(1)
