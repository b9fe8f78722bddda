"""Commands about calls that really run: `execute`, `worlds`, `reliability` and `traces`."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import (
    AsJson,
    count_noun,
    fail,
    print_json,
    print_line,
    report_lines,
    require_known,
)
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from assets.outcomes.worlds.spec import WorldSpec

app = typer.Typer()
traces_app = typer.Typer(no_args_is_help=True, help="Import traces of your own agents as pairs.")
app.add_typer(traces_app, name="traces")
_SHOWN = 40


@app.command()
def execute(
    tool_id: Annotated[str, typer.Argument(help="<server_id>::<tool>, as `search` prints it")],
    arguments: Annotated[str, typer.Option(help="a JSON object")] = "{}",
    world: Annotated[
        str | None, typer.Option(help="a world's name; default: the one that suits the server")
    ] = None,
) -> None:
    """Call a tool in a disposable world and print the outcome, with whose fault a failure is.

    The server sees nothing of yours but its secrets and its network. Exit 0 when the answer is
    useful."""
    from assets.outcomes.adhoc import execute_tool, find_call, pick_world
    from orchestration.factories import make_executor, open_made_warehouse

    settings = load_settings()
    executor = make_executor(settings)
    call, server = find_call(open_made_warehouse(settings), tool_id, arguments, executor)
    outcome = asyncio.run(execute_tool(call, server, pick_world(call, executor, world), executor))
    print_json(outcome)
    sys.exit(0 if outcome["outcome"] == "useful" else 1)


@app.command()
def worlds(
    name: Annotated[str | None, typer.Argument(help="one world; default: all")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="reset them and prove their tasks on real servers")
    ] = False,
    play: Annotated[
        bool, typer.Option("--play", help="carry out their tasks on real servers, and keep those")
    ] = False,
    server: Annotated[
        list[str] | None, typer.Option("--server", help="only these servers, by id")
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, max=100, help="--play: of each kind")] = 1,
    as_json: AsJson = False,
) -> None:
    """List the worlds that calls run in, --check them, or --play their tasks.

    --check runs each task's reference calls, and wrong calls, which its check must catch; exit 1
    where a world cannot be used. --play keeps trajectories that ended right, for `export --tasks
    trajectory` and `training.split.trajectories`; exit 1 where none did."""
    from assets.outcomes.worlds.check import check_resets, describe_worlds

    if play and check:
        fail("--play does not go with --check", 2)
    settings = load_settings()
    if play:
        _play_worlds(settings, choose_worlds(settings, name, server), server or (), tasks)
        return
    if not check:
        known_worlds = list_known_worlds(settings, name)
        rows = describe_worlds(known_worlds)
        if as_json:
            print_json({"worlds": rows})
        for row in () if as_json else rows:
            _print_world(row)
        if any(item.problem for item in known_worlds):
            sys.exit(1)
        return
    chosen = choose_worlds(settings, name, server)
    known_worlds = [] if name else list_known_worlds(settings, None)
    problems = [item.problem for item in known_worlds if item.problem]
    with TemporaryDirectory(prefix="toolmill-worlds-") as folder:
        rows = [check_resets(world, Path(folder) / world.name) for world in chosen]
    for world, row in zip(chosen, rows, strict=True):
        row["servers"] = _prove(world, server, settings) if row["status"] == "ok" else []
    _print_check(rows, problems, as_json)
    proved = [proof["status"] for row in rows for proof in row.get("servers", ())]
    if problems or "failed" in [*proved, *(row["status"] for row in rows)]:
        sys.exit(1)


def _play_worlds(
    settings: Settings, chosen: list["WorldSpec"], servers: Sequence[str], tasks: int
) -> None:
    from assets.outcomes.trajectory_play import (
        TrajectoryCollection,
        collect_trajectories,
        publish_trajectories,
    )
    from orchestration.factories import make_launcher, open_warehouse

    policy, warehouse = make_launcher(settings).policy, open_warehouse(settings)
    run_date = warehouse.ledger.open_run("trajectories")
    collection, kept_in_all = TrajectoryCollection(), 0
    try:
        asyncio.run(
            collect_trajectories(
                collection, chosen, policy, warehouse.ledger, run_date, report_lines(),
                servers=servers, n=tasks,
            )
        )  # fmt: skip
    finally:  # what was played until something went wrong is kept
        warehouse.ledger.close_run("trajectories")
        if collection.made:
            kept_in_all = publish_trajectories(warehouse.tables, collection.made, run_date)
    print_json({**collection.get_figures(), "kept_in_all": kept_in_all})
    if not collection.get_figures()["kept"]:
        sys.exit(1)


def list_known_worlds(settings: Settings, name: str | None) -> list[Any]:
    from assets.outcomes.worlds.catalogue import find_world, list_worlds

    result = list_worlds(settings.world_paths())
    if name is None:
        return result
    world = find_world(name, settings.world_paths())
    return [item for item in result if item.world and item.world.name == world.name]


def choose_worlds(
    settings: Settings, name: str | None, servers: list[str] | None
) -> list["WorldSpec"]:
    from assets.outcomes.worlds.catalogue import find_world, list_worlds

    if name:
        chosen = [find_world(name, settings.world_paths())]
    else:
        catalogue = list_worlds(settings.world_paths())
        chosen = [item.world for item in catalogue if item.world and not item.problem]
    require_known("--server", servers, sorted({fit.id for w in chosen for fit in w.servers}))
    return chosen


def _prove(world: "WorldSpec", only: list[str] | None, settings: Settings) -> list[dict[str, Any]]:
    from assets.outcomes.worlds.check import prove_tasks
    from orchestration.factories import make_launcher, open_warehouse

    policy, warehouse = make_launcher(settings).policy, open_warehouse(settings)
    run_date, rows = warehouse.ledger.open_run("worlds"), []
    try:
        for fit in world.servers:
            if not only or fit.id in only:
                proof = prove_tasks(world, fit, policy, warehouse.ledger, run_date)
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
    tools, kinds = count_noun(row["tools"], "tool"), count_noun(len(row["tasks"]), "kind")
    print_line(f"  {tools} of {', '.join(row['servers'])}; {kinds} of tasks")


def _print_check(rows: list[dict[str, Any]], problems: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"worlds": rows, "problems": problems})
        return
    for problem in problems:
        print_line(problem, err=True)
    for row in rows:
        print_line(f"{row['world']}  {row['status']}{_say_why(row)}")
        for server in row.get("servers", ()):
            proved = sum(task["status"] == "provable" for task in server["tasks"])
            counted = f"{proved} of {len(server['tasks'])} tasks provable"
            print_line(f"  {server['server']}  {server['status']}, {counted}{_say_why(server)}")
            for task in server["tasks"]:
                if task["status"] != "provable":
                    print_line(f"    {task['task']}  {task['status']}{_say_why(task)}")


def _say_why(row: dict[str, Any]) -> str:
    return f": {row['why']}" if row["why"] else ""


@app.command()
def reliability(
    tool: Annotated[str | None, typer.Argument(help="a tool id, or part of it")] = None,
    as_json: AsJson = False,
) -> None:
    """List how often tools work, as the last run left them, the least reliable first."""
    from assets.contracts.tool_id import ToolId
    from assets.outcomes.reliability.table import RELIABILITY
    from orchestration.factories import open_made_warehouse

    rows = open_made_warehouse(load_settings()).tables.read(RELIABILITY).to_dicts()
    selected = [
        {"tool_id": str(ToolId.of_row(row)), **row}
        for row in rows
        if (row["current"] or row["calls"]) and (not tool or tool in str(ToolId.of_row(row)))
    ]
    if tool and not selected:
        fix = "`toolmill search` finds ids; a run, then `toolmill reliability`, knows its tools"
        fail(f"{tool[:120]!r}: none of {len(rows)} versions of tools; {fix}", 2)
    selected.sort(key=lambda row: (row["mean"], -row["n"], row["tool_id"]))
    if as_json:
        print_json(selected)
        return
    for row in selected[:_SHOWN]:
        old = "" if row["current"] else "  [older contract]"
        failed = f"  failures {row['failures']}" if row["failed"] else ""
        interval = f"{row['low']:.2f} to {row['high']:.2f}"
        works = f"{row['mean']:.2f} ({interval}), n {row['n']:g}, prior {row['prior']:.2f}"
        print_line(f"{row['tool_id']}{old}  {works}{failed}")
    if len(selected) > _SHOWN:
        print_line(f"{len(selected) - _SHOWN} more; --json shows all")


@traces_app.command("import")
def import_(
    files: Annotated[
        list[Path], typer.Argument(help="sessions of Claude Code or Codex, OTLP as JSON, or ours")
    ],
    user: Annotated[
        str | None, typer.Option(help="whose traces; default: yours, of files that you own")
    ] = None,
) -> None:
    """Add useful and repaired calls of traces to what callers learn from."""
    from assets.outcomes.trace_pairs import import_traces
    from orchestration.factories import open_made_warehouse

    print_json(import_traces(open_made_warehouse(load_settings()), files, user, "traces import"))


@traces_app.command("list")
def list_traces() -> None:
    """Print how many rows each user's traces gave, as JSON."""
    from assets.outcomes.trace_pairs import count_users
    from orchestration.factories import open_made_warehouse

    print_json(count_users(open_made_warehouse(load_settings()).tables))


@traces_app.command("forget")
def forget_traces(
    user: Annotated[str | None, typer.Option(help="as in `traces import`; default: you")] = None,
) -> None:
    """Remove all rows of a user's traces, and what was kept under a token of that name; `gc`
    deletes older versions."""
    from assets.outcomes.trace_pairs import forget_user
    from assets.servers.calls.log import DeletionSubject, remove_lines
    from orchestration.cli.serving import open_call_log
    from orchestration.factories import open_made_warehouse

    settings = load_settings()
    removed = forget_user(open_made_warehouse(settings), user, "traces forget")
    lines = {"deleted": 0}
    if user:
        log = open_call_log(settings, settings.home_path())
        lines = remove_lines(log.traces, DeletionSubject(token=user))
    print_json({"removed": removed, "lines": lines["deleted"]})
