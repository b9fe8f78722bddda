"""Checkpoints: whole or absent, the newest that holds, two kept, a full disk told."""

import errno
import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.runtime import checkpoints
from training.runtime.model_store import TrainingFailed


def wrote(text: str):
    def fill(folder: Path) -> None:
        (folder / "state").mkdir()
        (folder / "state" / "weights").write_text(text)

    return fill


def test_two_are_kept_and_the_newest_is_gone_on_with(tmp_path: Path) -> None:
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


@given(at=st.integers(0, 4), byte=st.integers(0, 255))
@settings(max_examples=30, deadline=None)
def test_a_changed_byte_anywhere_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    root = tmp_path_factory.mktemp("changed")
    folder = checkpoints.save_checkpoint(root, 1, wrote("01234"))
    path = folder / "state" / "weights"
    held = bytearray(path.read_bytes())
    same = held[at] == byte
    held[at] = byte
    path.write_bytes(bytes(held))
    assert (checkpoints.find_checkpoint_flaw(folder) is None) is same


@pytest.mark.parametrize("damage", ["cut", "gone", "unsealed", "seal_is_prose"])
def test_a_damaged_newest_is_passed_over_and_told(tmp_path: Path, damage: str) -> None:
    for step in (1, 2):
        checkpoints.save_checkpoint(tmp_path, step, wrote(f"at {step}"))
    newest = tmp_path / "step-00000002"
    weights, seal = newest / "state" / "weights", newest / checkpoints.SEAL
    if damage == "cut":
        weights.write_text("at")
    elif damage == "gone":
        weights.unlink()
    elif damage == "unsealed":
        seal.unlink()
    else:
        seal.write_text("not json")
    notes: list[str] = []
    found = checkpoints.find_newest_checkpoint(tmp_path, tell=notes.append)
    assert found == tmp_path / "step-00000001"
    assert len(notes) == 1
    assert "step-00000002 is passed over" in notes[0]


def test_a_checkpoint_of_another_plan_is_not_gone_on_with(tmp_path: Path) -> None:
    checkpoints.save_checkpoint(tmp_path, 3, wrote("x"), "plan a")
    notes: list[str] = []
    assert checkpoints.find_newest_checkpoint(tmp_path, "plan b", notes.append) is None
    assert "another plan" in notes[0]
    assert checkpoints.find_newest_checkpoint(tmp_path, "plan a")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path: Path, error: Exception) -> None:
    checkpoints.save_checkpoint(tmp_path, 1, wrote("good"))

    def fill(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    with pytest.raises(TrainingFailed, match=r"disk full.*step 2.*Free some.*goes on after step 1"):
        checkpoints.save_checkpoint(tmp_path, 2, fill)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoints.find_newest_checkpoint(tmp_path)


def test_a_file_that_the_system_will_not_let_grow_is_a_full_disk(tmp_path: Path) -> None:
    checkpoints.save_checkpoint(tmp_path, 1, wrote("good"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(TrainingFailed, match="disk full"):
            checkpoints.save_checkpoint(tmp_path, 2, wrote("x" * 300_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoints.find_newest_checkpoint(tmp_path) == tmp_path / "step-00000001"


def test_another_error_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        checkpoints.save_checkpoint(tmp_path, 2, fill)
    assert list(tmp_path.iterdir()) == []
