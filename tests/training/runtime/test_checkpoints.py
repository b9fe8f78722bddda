"""Checkpoints, the frame of a training script, and the adapter table."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import cases
from training.adapter_table import check_adapter_rules
from training.runtime import checkpoints
from training.runtime.model_store import TrainingFailed, TrainingJob, write_job
from training.runtime.script_frame import LossLines, run_script, thin_losses


def wrote(text: str):
    def fill(folder: Path) -> None:
        (folder / "state").mkdir()
        (folder / "state" / "weights").write_text(text)

    return fill


def test_two_are_kept_and_the_newest_of_the_same_plan_is_gone_on_with(tmp_path):
    root = tmp_path / "run"
    assert checkpoints.find_newest_checkpoint(root) is None
    for step in (5, 10, 15):
        checkpoints.save_checkpoint(root, step, wrote(f"at {step}"))
    assert [path.name for path in sorted(root.iterdir())] == ["step-00000010", "step-00000015"]
    found = checkpoints.find_newest_checkpoint(root)
    assert found
    assert checkpoints.read_checkpoint_step(found) == 15
    assert (found / "state" / "weights").read_text() == "at 15"
    checkpoints.remove_checkpoints(root)
    assert not root.exists()
    checkpoints.save_checkpoint(tmp_path, 3, wrote("x"), "plan a")
    notes: list[str] = []
    assert checkpoints.find_newest_checkpoint(tmp_path, "plan b", notes.append) is None
    assert "another plan" in notes[0]
    assert checkpoints.find_newest_checkpoint(tmp_path, "plan a")


@given(at=st.integers(0, 4), byte=st.integers(0, 255))
@settings(max_examples=30, deadline=None)
def test_a_changed_byte_anywhere_is_noticed(tmp_path_factory, at, byte):
    folder = checkpoints.save_checkpoint(tmp_path_factory.mktemp("changed"), 1, wrote("01234"))
    path = folder / "state" / "weights"
    held = path.read_bytes()
    path.write_bytes(held[:at] + bytes([byte]) + held[at + 1 :])
    assert (checkpoints.find_checkpoint_flaw(folder) is None) is (held[at] == byte)


@cases(
    "damage",
    *(lambda weights, _: weights.write_text("at"), lambda weights, _: weights.unlink()),
    *(lambda _, seal: seal.unlink(), lambda _, seal: seal.write_text("[" * 100_000)),
)
def test_a_damaged_newest_is_passed_over_and_told(tmp_path, damage):
    for step in (1, 2):
        checkpoints.save_checkpoint(tmp_path, step, wrote(f"at {step}"))
    newest = tmp_path / "step-00000002"
    weights, seal = newest / "state" / "weights", newest / checkpoints.SEAL
    damage(weights, seal)
    notes: list[str] = []
    found = checkpoints.find_newest_checkpoint(tmp_path, tell=notes.append)
    assert found == tmp_path / "step-00000001"
    [note] = notes
    assert "step-00000002 is passed over" in note


FULL = r"disk full.*step 2.*Free some.*goes on after step 1"


@cases(
    "error, raised, message",
    (OSError(errno.ENOSPC, "No space left on device"), TrainingFailed, FULL),
    (RuntimeError("I/O error: No space left on device (os error 28)"), TrainingFailed, FULL),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), TrainingFailed, FULL),
    (PermissionError(errno.EACCES, "Permission denied"), PermissionError, "Permission denied"),
)
def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path, error, raised, message):
    checkpoints.save_checkpoint(tmp_path, 1, wrote("good"))

    def fill(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    with pytest.raises(raised, match=message):
        checkpoints.save_checkpoint(tmp_path, 2, fill)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoints.find_newest_checkpoint(tmp_path)


def train(job: TrainingJob, report: Any) -> dict[str, Any]:
    if job.base == "bad":
        raise TrainingFailed("caller: no such base; give another")
    report({"step": 1, "steps": 1, "loss": 0.5})
    return {"name": job.name, "losses": [0.5], "settings": {"rank": 1}, "steps": 1}


def job(home: Path, base: str = "good") -> str:
    return str(write_job(home, "caller", base, "set", {}, [])[1])


def test_the_card_is_the_last_line_and_losses_are_told_now_and_then(tmp_path, capfd):
    assert run_script("caller", train, [job(tmp_path)]) == 0
    printed = capfd.readouterr()
    [line] = printed.out.splitlines()
    assert json.loads(line)["steps"] == 1
    assert "losses" not in json.loads(line)
    assert printed.err == "caller step=1 steps=1 loss=0.5\n"
    written: list[str] = []
    lines = LossLines(written.append, "caller", every_s=1000.0)
    lines._last = 1e12  # nothing is due for long
    for step in (1, 2, 3):
        lines({"step": step, "steps": 3, "loss": step})
        lines({"note": f"after {step}"})
    assert written == [
        "caller after 1", "caller after 2", "caller step=3 steps=3 loss=3", "caller after 3"
    ]  # fmt: skip


def test_a_failed_training_is_one_line_of_one_process(tmp_path, capfd, monkeypatch):
    assert run_script("caller", train, [job(tmp_path, "bad")]) == 1
    assert capfd.readouterr().err == "caller: no such base; give another\n"
    monkeypatch.setenv("RANK", "1")
    assert run_script("caller", train, [job(tmp_path)]) == 0
    assert capfd.readouterr() == ("", "")
    assert run_script("caller", train, [job(tmp_path, "bad")]) == 1
    assert capfd.readouterr().err == "process 1: caller: no such base; give another\n"


def test_without_a_job_the_usage_is_told_and_a_file_that_is_none_is_named(tmp_path, capfd):
    for arguments in ([], ["a", "b"]):
        assert run_script("caller", train, arguments) == 2
        assert "usage: python -m training.caller.script JOB.json" in capfd.readouterr().err
    path = tmp_path / "job.json"
    for text in ("", "not json", "[]", '{"role": "caller"}'):
        path.write_text(text)
        assert run_script("caller", train, [str(path)]) == 1
        assert f"{path}: not a training job" in capfd.readouterr().err


@given(st.lists(st.floats(allow_nan=False), max_size=900), st.integers(2, 300))
def test_a_thinned_curve_keeps_its_ends_and_its_order(losses, most):
    kept = thin_losses(losses, most)
    assert len(kept) == min(len(losses), most)
    if losses:
        assert (kept[0], kept[-1]) == (losses[0], losses[-1])
    places = iter(losses)
    assert all(any(loss == other for other in places) for loss in kept)


# A sidecar over a small base, of the rows of one marketplace: one epoch, rows of all lengths.
SHORT = [2.091, 1.728, 1.525, 1.745, 2.522, 1.625, 1.369, 1.427, 1.51, 2.271, 1.521, 1.722]
UPDATE = [0.157, 0.282, 0.243, 0.126, 0.252, 0.184, 0.258, 0.172, 0.487, 0.567]


@cases(
    "start, losses, passes",
    (None, SHORT, True), (None, [2.0, 1.9, 1.1, 1.2], True), ("general", UPDATE, True),
    (None, [0.12, 0.2, 0.15, 0.25], True), (None, UPDATE, False), (None, [1.0, 2.0], False),
    (None, [1.5, 1.4, 1.6, 4.0, 6.0, 9.0], False), (None, [1.0, 1.1, 1.0, 1.6, 1.7, 1.6], False),
    (None, [1.5] * 6, False), ("general", [0.2, 0.3, 1.5, 3.0], False),
)  # fmt: skip
def test_a_loss_falls_by_its_ends_or_by_its_halves(tmp_path, start, losses, passes):
    some = 3 if len(losses) >= 6 else 1
    ends = {"loss_first": sum(losses[:some]) / some, "loss_last": sum(losses[-some:]) / some}
    card = {"name": "m", "role": "caller", "start": start, "losses": losses} | ends
    [fell] = [rule for rule in check_adapter_rules(tmp_path, card) if rule.rule == "loss_fell"]
    assert fell.passed is passes
