"""The asset `trajectories` over tasks that were played by a server of the tests' own."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.outcomes.plan import Executor
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.trajectories import defs
from assets.outcomes.trajectories.collect import Collected
from assets.outcomes.trajectories.play import play_tasks
from assets.outcomes.trajectories.trajectory import TRAJECTORIES, Trajectory, read_kept
from assets.outcomes.worlds.opened import open_world
from assets.outcomes.worlds.spec import load_world
from assets.servers.deploy.policy import DeployPolicy
from tests.outcomes.trajectories.test_play import stage_of, tasks_of
from tests.outcomes.worlds.files import write_world
from warehouse.store import Warehouse


@pytest.fixture
def played(tmp_path: Path) -> Trajectory:
    world = load_world(write_world(tmp_path / "worlds"))
    with open_world(world, 3, tmp_path / "place") as opened:
        stage = stage_of(opened)
        return asyncio.run(play_tasks([(stage, tasks_of(stage)["read"])]))


def run(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *made: Trajectory, problem: str = ""
) -> dict[str, Any]:
    async def collect(found: Collected, *_: object) -> None:
        found.made += made
        found.problems += [problem] if problem else []

    monkeypatch.setattr(defs, "collect_trajectories", collect)
    executor = Executor(DeployPolicy(warehouse.home), ExecutionPolicy())
    given = {"warehouse": warehouse, "executor": executor}
    held = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in given.items()}
    result = dg.materialize([defs.trajectories], resources=held, raise_on_error=False)
    events = result.get_asset_materialization_events()
    told = {k: v.value for k, v in events[0].materialization.metadata.items()} if events else {}
    return {**told, "success": result.success}


def test_what_was_played_is_published_with_its_figures_beside_what_was_there(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, played: Trajectory
) -> None:
    told = run(warehouse, monkeypatch, played)
    assert (told["success"], told["played"], told["kept"], told["kept_in_all"]) == (True, 1, 1, 1)
    other = replace(played, instruction="Read it again.")
    wrong = replace(played, instruction="Read it all.", why="read: empty")
    told = run(warehouse, monkeypatch, other, wrong, problem="mail: no such package")
    assert (told["played"], told["kept"], told["kept_in_all"]) == (2, 1, 2)
    assert "no such package" in told["problems"]
    assert "read: empty" in told["dropped"]
    assert len(read_kept(warehouse.tables)) == 2


def test_a_run_that_played_nothing_or_ended_wrong_leaves_what_was_there(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, played: Trajectory
) -> None:
    run(warehouse, monkeypatch, played)
    before = warehouse.tables.head(TRAJECTORIES.name)
    assert not run(warehouse, monkeypatch, problem="no sandbox")["success"]
    wrong = [replace(played, instruction=f"Read {n}.", why="read: empty") for n in range(2)]
    assert not run(warehouse, monkeypatch, *wrong)["success"]
    assert warehouse.tables.head(TRAJECTORIES.name) == before


def test_an_answer_that_holds_a_secret_is_found(played: Trajectory) -> None:
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    leaked = replace(played, steps=(replace(played.steps[0], answer=f"token {key}"),))
    assert defs.check_secrets([played.make_row()]).passed
    assert not defs.check_secrets([leaked.make_row()]).passed
