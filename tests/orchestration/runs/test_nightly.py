"""Which tasks a run splits the training into."""

import dagster as dg
import pytest

from orchestration.definitions import MEASURED, TRAINED
from orchestration.runs.nightly import list_trainings
from orchestration.runs.workers import RunTask, TaskOutcome
from orchestration.settings.model import Settings
from training.role import list_trained_roles
from training.runtime import device


def test_the_roles_part_the_training_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "pick_device", lambda wanted: "cpu")
    tasks = list_trainings(Settings())
    keys = [key.to_user_string() for task in tasks for key in task.list_assets() or []]
    assert len(tasks) == len(list_trained_roles())
    assert sorted(keys) == sorted([*TRAINED, *MEASURED])


def test_one_gpu_or_another_place_takes_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "pick_device", lambda wanted: "cuda")
    assert list_trainings(Settings()) == [RunTask("train")]
    assert len(list_trainings(Settings.model_validate({"training": {"device": "cpu"}}))) == len(
        list_trained_roles()
    )
    monkeypatch.setattr(device, "pick_device", lambda wanted: "cpu")
    elsewhere = Settings.model_validate({"training": {"place": {"runs_on": "ray"}}})
    assert list_trainings(elsewhere) == [RunTask("train")]
    assert RunTask("train").list_assets() is None


def test_a_task_of_some_assets_is_told_of_as_its_job() -> None:
    task = RunTask("nightly", "registry", names=("listings", "deployments"))
    assert task.list_assets() == [dg.AssetKey("listings"), dg.AssetKey("deployments")]
    row = TaskOutcome(task, "1", success=True, seconds=0.1).as_row()
    assert row["job"] == "nightly"
    assert "names" not in row
