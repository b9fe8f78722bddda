"""The frame of training scripts: what is told when, exit codes, and one voice of several."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.runtime.model_store import TrainingFailed, TrainingJob, write_job
from training.runtime.script_frame import LossLines, run_script, thin_losses


def train(job: TrainingJob, report: Any) -> dict[str, Any]:
    if job.base == "bad":
        raise TrainingFailed("caller: no such base; give another")
    report({"step": 1, "steps": 1, "loss": 0.5})
    return {"name": job.name, "losses": [0.5], "settings": {"rank": 1}, "steps": 1}


def job(home: Path, base: str = "good") -> str:
    return str(write_job(home, "caller", base, "set", {}, [])[1])


def test_the_card_is_the_last_line_and_the_loss_goes_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_script("caller", train, [job(tmp_path)]) == 0
    printed = capfd.readouterr()
    [line] = printed.out.splitlines()
    assert json.loads(line)["steps"] == 1
    assert "losses" not in json.loads(line)
    assert printed.err == "caller step=1 steps=1 loss=0.5\n"


def test_a_failed_training_is_one_line_and_exit_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_script("caller", train, [job(tmp_path, "bad")]) == 1
    assert capfd.readouterr().err == "caller: no such base; give another\n"


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_without_a_job_the_usage_is_told(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_script("caller", train, arguments) == 2
    assert "usage: python -m training.caller.script JOB.json" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"role": "caller"}'])
def test_a_file_that_is_no_job_is_named(
    tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    assert run_script("caller", train, [str(path)]) == 1
    assert f"{path}: not a training job" in capfd.readouterr().err


def test_of_several_processes_one_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert run_script("caller", train, [job(tmp_path)]) == 0
    assert capfd.readouterr() == ("", "")
    assert run_script("caller", train, [job(tmp_path, "bad")]) == 1
    assert capfd.readouterr().err == "process 1: caller: no such base; give another\n"


def test_steps_are_told_now_and_then_notes_and_the_last_step_always() -> None:
    written: list[str] = []
    lines = LossLines(written.append, "caller", every_s=1000.0)
    lines._last = 1e12  # nothing is due for long
    for step in (1, 2, 3):
        lines({"step": step, "steps": 3, "loss": step})
        lines({"note": f"after {step}"})
    assert written == [
        "caller after 1", "caller after 2", "caller step=3 steps=3 loss=3", "caller after 3"
    ]  # fmt: skip


@given(st.lists(st.floats(allow_nan=False), max_size=900), st.integers(2, 300))
def test_a_thinned_curve_keeps_its_ends_and_its_order(losses: list[float], most: int) -> None:
    kept = thin_losses(losses, most)
    assert len(kept) == min(len(losses), most)
    if losses:
        assert (kept[0], kept[-1]) == (losses[0], losses[-1])
    places = iter(losses)
    assert all(any(loss == other for other in places) for loss in kept)
