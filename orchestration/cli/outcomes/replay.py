"""The command `toolmill replay`: recorded worlds as a file that answers and scores calls."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from assets.outcomes.recording import Recording

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="a replay file")],
    write: Annotated[
        bool, typer.Option("--write", help="record what this home's worlds were asked")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="its tasks, one JSON object a line")
    ] = False,
    task: Annotated[str | None, typer.Option(help="one task, by id or its beginning")] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(help='a call of the task, in order: {"name": …, "arguments": {…}}'),
    ] = None,
) -> None:
    """Check a replay: every task's own calls must be worth 1. With --task: what calls are answered
    and worth. Exit 1 where a check fails or a call was never recorded."""
    from assets.outcomes.recording import read_recording
    from assets.outcomes.replay_environment import score_calls

    if write and (listing or task is not None or call):
        fail("--write records and does nothing else: give --list, --task and --call apart", 2)
    if write:
        _write_file(file)
        return
    recording = read_recording(file)
    if listing:
        for row in _list_tasks(recording):
            print_json(row)
        return
    if task is None:
        if call:
            fail("--call needs --task", 2)
        report = _check_recording(recording)
        print_json({"file": str(file), **report})
        sys.exit(1 if report["not_worth_1"] else 0)
    ids = [name for name in sorted(recording.tasks) if name.startswith(task)]
    if len(ids) != 1:
        found = f"{len(ids)} of {len(recording.tasks)} tasks begin so; --list shows them"
        fail(f"--task {task[:60]!r}: {found}", 2)
    score, steps = score_calls(recording, ids[0], [_read_call(text) for text in call or ()])
    request = recording.tasks[ids[0]].request
    rows = [vars(step) for step in steps]
    print_json({"task": ids[0], "request": request, "steps": rows, "score": vars(score)})
    if not score.known:
        sys.exit(1)


def _write_file(file: Path) -> None:
    from assets.outcomes.recording import is_recording, record_home, write_recording
    from orchestration.factories import open_made_warehouse

    if file.exists() and not is_recording(file):
        fail(f"{file} is there and is no replay file: name another", 2)
    made = record_home(open_made_warehouse(load_settings()))
    if made is None:
        fail(
            "no trajectory was played in this home whose contracts are clear: run `toolmill"
            " trajectories` first", 1,
        )  # fmt: skip
    write_recording(file, made)
    print_json({"file": str(file), **_describe(made)})


def _check_recording(recording: "Recording") -> dict[str, Any]:
    from assets.contracts.quarantined_tools import read_clear
    from assets.outcomes.replay_environment import score_calls
    from orchestration.factories import open_warehouse

    wrong = []
    for row in _list_tasks(recording):
        score, _ = score_calls(recording, row["task"], row["calls"])
        if score.reward < 1:
            wrong.append({"task": row["task"], "score": vars(score)})
    settings = load_settings()
    known = (settings.home_path() / "tables").is_dir()
    listed = read_clear(open_warehouse(settings)) if known else []
    changed = recording.find_changed(listed)
    return {**_describe(recording), "not_worth_1": wrong, "changed_contracts": changed}


def _list_tasks(recording: "Recording") -> list[dict[str, Any]]:
    """{task, request, calls} of each, its own calls as --call takes them."""
    return [
        {
            "task": name,
            "request": task.request,
            "calls": [{"name": call.tool, "arguments": call.arguments} for call in task.calls],
        }
        for name, task in sorted(recording.tasks.items())
    ]


def _describe(recording: "Recording") -> dict[str, Any]:
    return {
        "tasks": len(recording.tasks),
        "calls": len(recording.answers),
        "tools": len(recording.contracts),
        "volatility": recording.measure_volatility(),
    }


def _read_call(text: str) -> dict[str, Any]:
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict) or not isinstance(held.get("name"), str):
        fail(f"--call {text[:60]!r}: expected a JSON object with `name` and `arguments`", 2)
    return held
