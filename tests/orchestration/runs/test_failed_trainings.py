"""A training that fails is tried as often as the settings say by `toolmill run` too."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.runs import nightly
from orchestration.runs.workers import RunTask, TaskOutcome
from orchestration.sensors import INTERRUPTED
from orchestration.settings.load import load_settings
from tests.orchestration.runs.test_dead_runs import instance, nothing  # noqa: F401
from tests.orchestration.test_retrain_on_drift import publish
from training.drift.decide import Decision, RetrainDecision, SkipDecision


class FailingTrainings:
    """Workers whose trainings fail, recorded as runs of the job are."""

    interrupted = False

    def __init__(self, instance: dg.DagsterInstance, _: Any) -> None:  # noqa: F811
        self._instance = instance

    def __enter__(self) -> "FailingTrainings":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, *tasks: RunTask) -> Iterable[TaskOutcome]:
        return [self._carry_out(task) for task in tasks]

    def _carry_out(self, task: RunTask) -> TaskOutcome:
        if task.job != "train":
            return TaskOutcome(task, "run", True, 0.0)
        failed = dg.DagsterRunStatus.FAILURE
        tags = {**dict(task.tags), **(dict([INTERRUPTED]) if self.interrupted else {})}
        run = self._instance.add_run(dg.DagsterRun("train", status=failed, tags=tags))
        return TaskOutcome(task, run.run_id, False, 0.0)


def test_run_once_counts_the_attempts_that_failed_on_a_set(
    instance: dg.DagsterInstance,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    counted: list[int] = []

    def decide(warehouse: Any, trainer: Any, failed: int = 0) -> Decision:
        counted.append(failed)
        return SkipDecision(["fix it first"]) if failed >= 2 else RetrainDecision(["drift"])

    for name, stand_in in (
        ("decide_on_drift", decide),
        ("WorkerPool", FailingTrainings),
        ("open_instance", lambda: _Kept(instance)),
    ):
        monkeypatch.setattr(nightly, name, stand_in)
    publish(tmp_path, {"a": "1"})
    for _ in range(4):
        nightly.run_once(load_settings(), only=["registry"])
    assert counted == [0, 1, 2, 2], "two roles that fail in one run are one attempt"
    publish(tmp_path, {"a": "2"})
    monkeypatch.setattr(FailingTrainings, "interrupted", True)
    for _ in range(2):
        nightly.run_once(load_settings(), only=["registry"])
    assert counted[4:] == [0, 0], "another set is tried anew, what a person ended is none"


class _Kept:
    """An instance that outlives the run that opened it."""

    def __init__(self, kept: dg.DagsterInstance) -> None:
        self._kept = kept

    def __enter__(self) -> dg.DagsterInstance:
        return self._kept

    def __exit__(self, *_: object) -> None:
        pass
