"""A replay file is read whole or refused with what is wrong."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assets.outcomes.replay.environment import ReplayEnvironment
from assets.outcomes.replay.file import ReplayDamaged, read_recording, write_recording
from assets.outcomes.replay.recording import record_trajectories, select_clear
from tests.outcomes.replay.recorded import READ, recording, rows
from warehouse.storage.digest import sha256


def test_what_was_written_is_read_and_the_same_recording_is_the_same_bytes(tmp_path: Path) -> None:
    made = recording()
    write_recording(tmp_path / "one", made)
    write_recording(tmp_path / "two", record_trajectories(list(reversed(rows()))))
    assert read_recording(tmp_path / "one") == made
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def reseal(data: bytes) -> bytes:
    first, _, body = data.partition(b"\n")
    return json.dumps({**json.loads(first), "sha256": sha256(body)}).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: data[:-20], "damaged, its bytes are not those that were sealed"),
        (lambda data: data.replace(b"first", b"other"), "damaged"),
        (lambda data: b"", "no replay file"),
        (lambda data: b"\xff\xfe", "no replay file"),
        (lambda data: b'["a list"]\n', "no replay file"),
        (lambda data: data.replace(b'"version": 1', b'"version": 2'), "version 2, expected 1"),
        (lambda data: reseal(data + b"{\n"), "line .* holds no contract, answer or task"),
        (lambda data: reseal(data + b'{"task": {"id": 1}}\n'), "holds no contract"),
        (lambda data: reseal(data + b'{"key": "k", "answer": {"text": 1}}\n'), "holds no contract"),
        (lambda data: reseal(data + b"[" * 9000 + b"\n"), "holds no contract"),
        (lambda data: reseal(data.replace(b'"seen": 1', b'"seen": "1"')), "holds no contract"),
        (
            lambda data: reseal(data.replace(b'"arguments": {"path": "/a"}', b'"arguments": "x"')),
            "holds no contract",
        ),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(
    tmp_path: Path, damage: Callable[[bytes], bytes], told: str
) -> None:
    path = tmp_path / "x.jsonl"
    write_recording(path, recording())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ReplayDamaged, match=told) as error:
        read_recording(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_too_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReplayDamaged, match="name a replay file"):
        read_recording(tmp_path / "none")
    path = tmp_path / "x.jsonl"
    write_recording(path, recording())
    monkeypatch.setattr("assets.outcomes.replay.file.MOST_BYTES", 10)
    with pytest.raises(ReplayDamaged, match="expected at most 10"):
        read_recording(path)


def test_a_pipe_is_not_waited_for_and_a_device_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "."):
        with pytest.raises(ReplayDamaged, match="no plain file; name a replay file"):
            read_recording(tmp_path / name)


def test_a_tool_of_a_server_without_a_state_is_a_miss() -> None:
    """A file from elsewhere may offer one."""
    made = recording()
    task = next(iter(made.tasks.values()))
    world = ReplayEnvironment(made)
    made.tasks[task.id] = replace(task, states={})
    world.reset(task.id)
    assert world.step("read", READ["arguments"]).missed


def test_what_rests_on_a_held_contract_is_not_recorded() -> None:
    own = json.loads(rows()[0]["contracts"])[0]["contract_digest"]
    assert select_clear(rows(), lambda listed: {own}) == []
    assert select_clear(rows(), lambda listed: set()) == rows()
