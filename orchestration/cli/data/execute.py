"""The command `toolmill execute`: one call of one tool in one disposable world."""

import asyncio
import sys
from dataclasses import replace
from typing import Annotated

import typer

from orchestration.cli.terminal import print_json
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


@app.command()
def execute(
    tool_id: Annotated[str, typer.Argument(help="<server_id>::<tool>, as `search` prints it")],
    arguments: Annotated[str, typer.Option(help="a JSON object")] = "{}",
    world: Annotated[
        str | None, typer.Option(help="a world's name; default: the one that suits the server")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, max=300, help="seconds for the tool's answer")
    ] = None,
) -> None:
    """Call a tool in a disposable world and print what it did, whose fault a failure is, and why.

    Nothing of yours is shown to the server but its secrets and its network. Exit 0 when the
    answer is useful."""
    from assets.outcomes.adhoc import execute_tool, find_call, pick_world
    from orchestration.factories import make_executor, open_made_warehouse

    settings = load_settings()
    executor = make_executor(settings)
    if timeout is not None:
        executor = replace(executor, settings=replace(executor.settings, timeout_s=timeout))
    call, server = find_call(open_made_warehouse(settings), tool_id, arguments, executor)
    chosen = pick_world(call, executor, world)
    found = asyncio.run(execute_tool(call, server, chosen, executor))
    print_json(found)
    sys.exit(0 if found["outcome"] == "useful" else 1)
