"""The commands `env export` and `env live`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import allow_models, load_settings

app = typer.Typer(
    name="env", no_args_is_help=True, help="Environments of public standards from a release."
)


@app.command("export")
def export(
    out: Annotated[Path, typer.Option("--out", help="a new or empty folder")],
    release: Annotated[
        str | None, typer.Option(help="as `release list` names it; default: the served one")
    ] = None,
) -> None:
    """Write a release's tasks as an OpenEnv server and a verifiers taskset.

    The folder needs neither Toolmill nor this home, but in its mode `live`."""
    from extensions.environments.export import export_environment
    from extensions.environments.tasks import select_tasks
    from orchestration.factories import make_embedder, open_made_warehouse
    from training.releases.release import find_release, read_served

    settings = load_settings()
    warehouse = open_made_warehouse(settings)
    chosen = release or read_served(warehouse.home).get("release")
    if chosen is None:
        fail("nothing is served yet: `toolmill run` makes the first release", 2)
    facts = find_release(warehouse.home, chosen)
    made = select_tasks(warehouse, facts["training_set"])
    allow_models(settings)
    embed = make_embedder(settings).embed
    print_json({"folder": str(out), **export_environment(made, out, facts, embed)})


@app.command("live")
def answer_live(folder: Annotated[Path, typer.Argument(help="an exported environment")]) -> None:
    """Answer an exported environment's calls by its servers, line by line (stdin, stdout)."""
    from assets.servers.deploy.deployment_table import DEPLOYMENTS
    from extensions.environments.live import LiveTasks, answer_lines
    from orchestration.factories import make_executor, open_made_warehouse
    from training.releases.index_source import map_server_recipes

    settings = load_settings()
    deployed = open_made_warehouse(settings).tables.read(DEPLOYMENTS).to_dicts()
    tasks = LiveTasks(folder, make_executor(settings), map_server_recipes(deployed))
    for line in answer_lines(tasks, sys.stdin):
        print_line(line)
        sys.stdout.flush()
