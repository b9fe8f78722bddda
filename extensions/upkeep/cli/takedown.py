"""`toolmill takedown add | list | lift | renew`: what must vanish from a home.

Because its owner asks, or because it is a secret that was found late.
"""

import sys
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(
    name="takedown",
    no_args_is_help=True,
    add_completion=False,
    help="Servers, tools and secrets that must vanish from all that was made.",
)

BY = typer.Option("--by", help="who decides")
WHY = typer.Option("--why", help="who asked, and why it is so")
JSON = typer.Option("--json", help="one JSON object")


@app.callback()
def takedown() -> None:
    """What must vanish from tables of any day, exports, vectors and what is served."""


@app.command()
def add(
    by: Annotated[str, BY],
    why: Annotated[str, WHY],
    name: Annotated[
        str | None, typer.Argument(help="a server's or listing's id, or a tool's: server::tool")
    ] = None,
    secret: Annotated[
        bool, typer.Option("--secret", help="a text instead, read from standard input")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Take down a server, one tool or a secret; the same again reaches what came since."""
    from extensions.upkeep.takedown.takedown import take_down, take_down_secret
    from orchestration.factories import open_made_warehouse

    if (name is None) != secret:
        fail("give either an id or --secret, with the secret on standard input", 2)
    warehouse = open_made_warehouse(load_settings())
    if name is not None:
        made = take_down(warehouse, name, by, why)
    else:
        made = take_down_secret(warehouse, _read_secret(), by, why)
    if as_json:
        print_json(made)
        return
    _print_tombstone(made)
    if (made["by"], made["why"]) != (by, why):
        print_line("it was taken down before, by the words above: they stay")
    print_line("nothing reads it from now on; `toolmill gc --yes` takes its bytes away")


@app.command("list")
def list_tombstones(
    everything: Annotated[bool, typer.Option("--all", help="with what was lifted")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """What is taken down: who decided it, when and why, and how much it reaches."""
    from extensions.upkeep.takedown.takedown import describe_tombstone
    from orchestration.factories import open_made_warehouse
    from warehouse.storage.takedowns import find_active, read_tombstones

    home = open_made_warehouse(load_settings()).home
    listed = read_tombstones(home) if everything else list(find_active(home).values())
    rows = [describe_tombstone(one) for one in listed]
    if as_json:
        print_json({"takedowns": rows})
        return
    for row in rows:
        _print_tombstone(row)
    print_line(f"{len(find_active(home))} taken down")


@app.command()
def lift(
    name: Annotated[str, typer.Argument(help="as `takedown list` prints it")],
    by: Annotated[str, BY],
    why: Annotated[str, WHY],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Let one in again: what tables still hold is read at once, all else comes with a run."""
    from extensions.upkeep.takedown.takedown import lift_takedown
    from orchestration.factories import open_made_warehouse

    made = lift_takedown(open_made_warehouse(load_settings()), name, by, why)
    print_json(made) if as_json else _print_tombstone(made)


@app.command()
def renew(as_json: Annotated[bool, JSON] = False) -> None:
    """Have every take-down reach what came since, and block it in what is served."""
    from extensions.upkeep.takedown.takedown import renew_takedowns
    from orchestration.factories import open_made_warehouse

    made = renew_takedowns(open_made_warehouse(load_settings()))
    if as_json:
        print_json({"takedowns": made})
        return
    for one in made:
        _print_tombstone(one)


def _read_secret() -> str:
    """What stands on standard input, less the line break at its end; asked for unseen on a
    terminal. Never an argument: those stay in a shell's history."""
    if sys.stdin.isatty():
        return typer.prompt("secret", hide_input=True, err=True)
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _print_tombstone(made: dict[str, Any]) -> None:
    reach = ", ".join(f"{count} {part}" for part, count in made["reach"].items() if count)
    print_line(f"{made['verdict']}  {made['name']}  ({made['kind']}; {reach or 'texts'})")
    print_line(f"    {made['at']}  by {made['by']}: {made['why']}")
