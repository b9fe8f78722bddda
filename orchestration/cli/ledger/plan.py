"""The command `toolmill plan`: what a run would do, what it would cost, and whether that fits."""

from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    marketplace: Annotated[
        list[str] | None, typer.Option("--marketplace", "-m", help="only these; default: all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Estimate the next run: due keys, calls, dollars and minutes.

    Nothing is sent. Exit 1 where the run would pass the budget."""
    from orchestration.cli.data.crawl import require_marketplaces
    from warehouse.home import require_home

    require_marketplaces(marketplace or ())
    settings = load_settings()
    require_home(settings.home_path())
    from orchestration.plan import make_plan

    made = make_plan(settings, marketplace)
    if as_json:
        print_json(asdict(made))
    for line in () if as_json else made.describe():
        print_line(line)
    if made.exceeded:
        fail(made.exceeded, 1)
