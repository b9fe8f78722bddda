"""Commands about disposable worlds: `toolmill worlds list | reset | check`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import print_json, print_line, require_known
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from assets.outcomes.worlds.spec import World
    from orchestration.settings.model import Settings

app = typer.Typer(
    name="worlds",
    no_args_is_help=True,
    add_completion=False,
    help="Environments that calls run in: seeded, reset at will, with tasks that can be checked.",
)

JSON = typer.Option("--json", help="one JSON object")
SEED = typer.Option(help="decides the first state")


@app.callback()
def worlds() -> None:
    """Environments that calls run in: seeded, reset at will, with tasks that can be checked."""


@app.command("list")
def list_known(as_json: Annotated[bool, JSON] = False) -> None:
    """Every world, the servers it suits, and what keeps it from being opened here. Exit 1 where a
    world file cannot be used."""
    from assets.outcomes.worlds.catalogue import list_worlds
    from assets.outcomes.worlds.check import describe_worlds

    known = list_worlds(load_settings().worlds.paths)
    rows = describe_worlds(known)
    if as_json:
        print_json({"worlds": rows})
    else:
        for row in rows:
            _print_world(row)
    if any(one.problem for one in known):
        sys.exit(1)


@app.command()
def reset(
    name: Annotated[str, typer.Argument(help="as in `worlds list`")],
    seed: Annotated[int, SEED] = 1,
    place: Annotated[
        Path | None, typer.Option(help="a folder for it; default: worlds/NAME in the home")
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(help="something wrong from the start, by its name in the world's file"),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Put a world into its first state, and say where it lies and what its digest is."""
    from assets.outcomes.worlds.session import open_world

    settings = load_settings()
    where = (place or settings.home_path() / "worlds" / name).resolve()
    with open_world(name, seed, where, fault=fault, paths=settings.worlds.paths) as opened:
        facts = {
            "world": opened.world.name,
            "seed": seed,
            "fault": fault,
            "folder": str(opened.folder),
            "digest": opened.digest_state(),
            "facts": len(opened.read_facts()),
        }
    if as_json:
        print_json(facts)
    else:
        print_line(f"{name} (seed {seed}): {facts['facts']} facts, {facts['digest']}")
        print_line(f"  {facts['folder']}")


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(help="one world; default: all")] = None,
    server: Annotated[list[str] | None, typer.Option(help="only these servers, by id")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="launch no server")] = False,
    seed: Annotated[int, SEED] = 1,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Reset worlds and compare; run each task's reference calls on its real servers, and wrong
    calls, which its check must catch. Exit 1 where one fails."""
    from assets.outcomes.worlds.catalogue import find_world, list_worlds
    from assets.outcomes.worlds.check import check_resets

    settings, problems = load_settings(), list[str]()
    if name:
        chosen = [find_world(name, settings.worlds.paths)]
    else:
        known = list_worlds(settings.worlds.paths)
        chosen = [one.world for one in known if one.world and not one.problem]
        problems = [one.problem for one in known if one.problem]
    require_known("--server", server, sorted({fit.id for one in chosen for fit in one.servers}))
    with TemporaryDirectory(prefix="toolmill-worlds-") as folder:
        rows = [check_resets(one, Path(folder) / one.name) for one in chosen]
    if not offline:
        for world, row in zip(chosen, rows, strict=True):
            row["servers"] = _prove(world, server, settings, seed) if row["status"] == "ok" else []
    _print_check(rows, problems, as_json)
    proved = [one["status"] for row in rows for one in row.get("servers", ())]
    if problems or "failed" in [*proved, *(row["status"] for row in rows)]:
        sys.exit(1)


def _prove(
    world: "World", only: list[str] | None, settings: "Settings", seed: int
) -> list[dict[str, Any]]:
    import asyncio

    from assets.outcomes.worlds.check import prove_tasks
    from orchestration.factories import make_launcher, open_warehouse

    policy, warehouse = make_launcher(settings).policy, open_warehouse(settings)
    run_date, rows = warehouse.ledger.open_run("worlds"), []
    try:
        for fit in world.servers:
            if not only or fit.id in only:
                proof = prove_tasks(world, fit, policy, warehouse.ledger, run_date, seed=seed)
                rows.append(asyncio.run(proof))
    finally:
        warehouse.ledger.close_run("worlds")
    return rows


def _print_world(row: dict[str, Any]) -> None:
    if row["kind"] is None:
        print_line(f"{row['name']}  unusable: {row['why']}")
        return
    state = f"unavailable: {row['why']}" if row["why"] else "available"
    print_line(f"{row['name']}  {row['kind']}  {state}")
    print_line(
        f"  {row['tools']} tools of {', '.join(row['servers'])};"
        f" {len(row['tasks'])} kinds of tasks, {len(row['faults'])} faults"
    )


def _print_check(rows: list[dict[str, Any]], problems: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"worlds": rows, "problems": problems})
        return
    for problem in problems:
        print_line(problem, err=True)
    for row in rows:
        print_line(f"{row['world']}  {row['status']}{_say_why(row)}")
        for server in row.get("servers", ()):
            proved = sum(one["status"] == "provable" for one in server["tasks"])
            counted = f"{proved} of {len(server['tasks'])} tasks provable"
            print_line(f"  {server['server']}  {server['status']}, {counted}{_say_why(server)}")
            for one in server["tasks"]:
                if one["status"] != "provable":
                    print_line(f"    {one['task']}  {one['status']}{_say_why(one)}")


def _say_why(row: dict[str, Any]) -> str:
    return f": {row['why']}" if row["why"] else ""
