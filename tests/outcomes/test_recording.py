"""A recording holds whole answers alone, and its file is the one that was sealed."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from assets.outcomes.recording import (
    ReplayDamaged,
    make_key,
    read_recording,
    record_trajectories,
    select_clear,
    write_recording,
)
from assets.outcomes.replay_environment import ReplayEnvironment
from tests.outcomes.recorded import CONTRACTS, READ, recording, row, rows, step
from warehouse.storage.digest import sha256

NAME = contract_digest(CONTRACTS["read"])


@pytest.mark.parametrize("outcome", ["refused", "truncated", "timeout", "protocol_error"])
def test_a_played_call_without_a_whole_answer_is_a_miss(outcome: str) -> None:
    """What was withheld has no words here: to replay none would make an answer up."""
    inputs = {"path": "/q"}
    built = record_trajectories(
        [row(step("read", inputs, "", "s1", "s1", outcome=outcome), why="no useful answer")]
    )
    assert make_key(NAME, inputs, "s1") not in built.answers


def test_arguments_without_a_canonical_form_have_a_key_that_nothing_holds() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert make_key(NAME, {"n": float("nan")}, "s1") == ""
    assert make_key(NAME, deep, "s1") == ""
    assert "" not in recording().answers


def test_what_was_written_is_read_and_the_same_recording_is_the_same_bytes(tmp_path: Path) -> None:
    built = recording()
    write_recording(tmp_path / "one", built)
    write_recording(tmp_path / "two", record_trajectories(list(reversed(rows()))))
    assert read_recording(tmp_path / "one") == built
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def reseal(data: bytes) -> bytes:
    first, _, body = data.partition(b"\n")
    return json.dumps({**json.loads(first), "sha256": sha256(body)}).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("damage", "output"),
    [
        (lambda data: data[:-20], "damaged, its bytes are not those that were sealed"),
        (lambda data: data.replace(b"first", b"other"), "damaged"),
        (lambda data: b"", "no replay file"),
        (lambda data: b"\xff\xfe", "no replay file"),
        (lambda data: b'["a list"]\n', "no replay file"),
        (lambda data: data.replace(b'"version": 2', b'"version": 1'), "version 1, expected 2"),
        (lambda data: reseal(data + b"{\n"), "line .* holds no contract, answer or task"),
        (lambda data: reseal(data + b'{"task": {"id": 1}}\n'), "holds no contract"),
        (lambda data: reseal(data + b'{"key": "k", "answer": {"text": 1}}\n'), "holds no contract"),
        (lambda data: reseal(data + b"[" * 9000 + b"\n"), "holds no contract"),
        (lambda data: reseal(data.replace(b'"after": "s1"', b'"after": 1')), "holds no contract"),
        (
            lambda data: reseal(data.replace(b'"arguments": {"path": "/a"}', b'"arguments": "x"')),
            "holds no contract",
        ),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(
    tmp_path: Path, damage: Callable[[bytes], bytes], output: str
) -> None:
    path = tmp_path / "x.jsonl"
    write_recording(path, recording())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ReplayDamaged, match=output) as error:
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
    monkeypatch.setattr("assets.outcomes.recording.MOST_BYTES", 10)
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
    built = recording()
    task = next(iter(built.tasks.values()))
    world = ReplayEnvironment(built)
    built.tasks[task.id] = replace(task, states={})
    world.reset(task.id)
    assert world.step("read", READ["arguments"]).missed


def test_what_rests_on_a_held_contract_is_not_recorded() -> None:
    group = json.loads(rows()[0]["contracts"])[0]["contract_digest"]
    assert select_clear(rows(), lambda listing: {group}) == []
    assert select_clear(rows(), lambda listing: set()) == rows()
