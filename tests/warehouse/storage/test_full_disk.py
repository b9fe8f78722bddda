"""A disk that fills up costs the line that did not fit, and no line before or after it."""

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.upkeep.storage_repair import repair_home
from tests.support.cases import cases
from warehouse.storage import tables
from warehouse.storage.files import append_line, read_history, write_changed
from warehouse.storage.tables import Tables, TableSpec

SPEC = TableSpec("things", key=("id",), columns={"id": pl.String, "value": pl.Int64})
TORN = b'{"digest": "ab", "rows": 1, "run'


def publish(root: Tables, value: int) -> str:
    frame = SPEC.frame([{"id": "a", "value": value}])
    return root.promote(root.stage(SPEC, frame), "run\u2028one", []).digest  # one line all the same


@contextmanager
def room(monkeypatch: pytest.MonkeyPatch, free: int) -> Iterator[None]:
    """`os.write` on a disk with `free` bytes left: short first, then an error, as the kernel's."""
    left, write = [free], os.write

    def write_some(handle: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(handle, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_some)
        yield


@cases("free", 0, 1, 7, 11)
def test_a_line_that_does_not_fit_raises_and_leaves_no_part(tmp_path, monkeypatch, free):
    path = tmp_path / "lines.jsonl"
    append_line(path, '{"n": 1}')
    with room(monkeypatch, free), pytest.raises(OSError, match="No space left"):
        append_line(path, '{"name": "longer than the room"}')
    assert path.read_text() == '{"n": 1}\n'
    append_line(path, '{"n": 2}')
    assert [line["n"] for line in read_history(path)] == [1, 2]


def test_a_short_write_is_finished(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    append_line(tmp_path / "lines", "a line of more than three bytes")
    assert (tmp_path / "lines").read_text() == "a line of more than three bytes\n"


def test_a_line_after_a_torn_one_is_a_line_of_its_own(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 2, "te')
    append_line(path, '{"n": 3}')
    assert [line["n"] for line in read_history(path)] == [1, 3]


@given(torn=st.binary(max_size=60), where=st.integers(0, 3))
def test_no_torn_line_hides_history(tmp_path_factory, torn, where):
    root = Tables(tmp_path_factory.mktemp("tables"))
    versions = [publish(root, value) for value in range(3)]
    path = root.folder("things") / "HEADS.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:where], torn.replace(b"\n", b""), *lines[where:]]))
    assert [head.digest for head in root.history("things")] == versions
    assert root.read(SPEC, as_of=time.time())["value"].to_list() == [2]
    versions.append(publish(root, 9))
    assert [head.digest for head in root.history("things")] == versions


@cases("line", "{}", '{"digest": 1}', '{"digest":"a","rows":1,"run_id":"r","at":"x"}', "[1]", "7")
def test_a_line_that_is_no_publication_is_passed_over(tmp_path, line):
    root = Tables(tmp_path)
    version = publish(root, 1)
    with (root.folder("things") / "HEADS.jsonl").open("a") as file:
        file.write(line + "\n")
    assert [head.digest for head in root.history("things")] == [version]
    assert root.head("things", as_of=time.time()) is not None


def stop(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@cases("part", "add_history", "write_pointer")
def test_a_publication_that_stops_is_whole_or_absent_and_heals(tmp_path, monkeypatch, part):
    root = Tables(tmp_path)
    first = publish(root, 1)
    with monkeypatch.context() as patched:
        patched.setattr(tables, part, stop)
        with pytest.raises(OSError, match="No space left"):
            publish(root, 2)
    current = root.head("things")
    assert current
    assert root.history("things")[-1] == current, "history ends with what is current"
    again = publish(root, 2)
    assert [head.digest for head in root.history("things")] == [first, again]
    lines = read_history(root.folder("things") / "HEADS.jsonl")
    assert [line["digest"] for line in lines] == [first, again]


@cases("damage", b"", b"PAR1 torn")
def test_a_damaged_version_is_written_anew(tmp_path, damage):
    root = Tables(tmp_path)
    version = publish(root, 1)
    (root.folder("things") / f"{version}.parquet").write_bytes(damage)
    assert publish(root, 1) == version
    assert root.read(SPEC)["value"].to_list() == [1]


@cases("data", b"", b"{", b'{"digest": "gone"}', None)
def test_repair_puts_a_broken_or_lost_pointer_back_to_the_last_whole_version(tmp_path, data):
    root = Tables(tmp_path / "tables")
    publish(root, 1)
    last = publish(root, 2)
    path = root.folder("things") / "HEAD.json"
    path.unlink() if data is None else path.write_bytes(data)
    assert repair_home(tmp_path, dry=True).pointers == 1
    result = repair_home(tmp_path)
    head = root.head("things")
    assert (result.pointers, head and head.digest) == (1, last)
    assert repair_home(tmp_path).healthy


def test_repair_takes_torn_lines_out_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "quarantine" / "decisions.jsonl"
    for number in range(3):
        append_line(path, json.dumps({"n": number}))
    path.write_bytes(path.read_bytes() + TORN + b"\n\xff\n")
    before = path.read_bytes()
    assert repair_home(tmp_path, dry=True).torn_lines == 2
    assert path.read_bytes() == before, "a look changes nothing"
    assert repair_home(tmp_path).torn_lines == 2
    assert path.read_text().count("\n") == 3
    assert [item.read_bytes() for item in path.parent.glob("*.before-*")] == [before]
    assert repair_home(tmp_path).healthy


def test_repair_of_a_whole_home_changes_nothing(tmp_path):
    publish(Tables(tmp_path / "tables"), 1)

    def files() -> dict[Path, tuple[bytes, int]]:
        every = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in every}

    before = files()
    assert repair_home(tmp_path).healthy
    assert files() == before


def test_only_other_bytes_are_written(tmp_path):
    path = tmp_path / "reports" / "page.md"
    assert write_changed(path, b"one")
    before = path.stat()
    assert not write_changed(path, b"one")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert write_changed(path, b"two")  # as many bytes
    assert path.read_bytes() == b"two"
    path.unlink()
    assert write_changed(path, b"two")
    assert path.read_bytes() == b"two"
