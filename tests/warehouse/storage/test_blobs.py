"""Blobs are named by their bytes and verified when read; lines outlive a full disk."""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
import rfc8785
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from extensions.upkeep.storage_repair import repair_home
from tests.support.cases import cases
from tests.support.examples import json_values
from warehouse.storage import tables, untrusted_files
from warehouse.storage.blobs import BlobCorrupt, Blobs
from warehouse.storage.digest import Sha256, canonical_json, read_sha256, sha256
from warehouse.storage.files import append_line, read_history, write_atomically, write_changed
from warehouse.storage.tables import Tables, TableSpec


@given(st.binary(max_size=2000))
def test_what_is_put_is_got_under_its_sha256(tmp_path_factory, data):
    blobs = Blobs(tmp_path_factory.mktemp("blobs"))
    sha = blobs.put(data)
    assert sha == sha256(data)
    assert blobs.get(sha) == data
    assert blobs.put(data) == sha


@cases("name", "../../state/ledger.db", "/etc/passwd", "", "ab")
def test_only_a_sha256_becomes_a_path(tmp_path, name):
    for use in (Blobs(tmp_path).path, Blobs(tmp_path).has, Blobs(tmp_path).get):
        with pytest.raises(ValueError, match="is not a SHA-256"):
            use(name)
    with pytest.raises(KeyError, match="no blob abcd"):
        Blobs(tmp_path).get("abcd" * 16)


@cases("damage", b"", b"not zstd", b"\x28\xb5\x2f\xfd", None)
def test_a_damaged_blob_says_what_to_do_and_putting_it_again_replaces_it(tmp_path, damage):
    blobs = Blobs(tmp_path)
    sha, other = blobs.put(b"good"), blobs.path(blobs.put(b"other")).read_bytes()
    blobs.path(sha).write_bytes(other if damage is None else damage)
    hint = "other bytes" if damage is None else "run again"
    with pytest.raises(BlobCorrupt, match=hint) as caught:
        blobs.get(sha)
    assert sha in str(caught.value)
    assert not blobs.has(sha)
    assert blobs.put(b"good") == sha
    assert blobs.get(sha) == b"good"


def test_a_frame_that_claims_another_size_is_corrupt(tmp_path):
    """The size in a frame's header is text of the disk too: it is read no further than the cap."""
    blobs = Blobs(tmp_path)
    blobs.max_bytes = 1000
    sha = sha256(bytes(100_000))
    write_atomically(blobs.path(sha), zstandard.ZstdCompressor().compress(bytes(100_000)))
    with pytest.raises(BlobCorrupt):
        blobs.get(sha)


def test_a_blob_and_its_name_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle)[0]))
    )
    blobs = Blobs(tmp_path)
    blobs.put(b"paid for")
    assert synced == [False, True], "the bytes first, then the folder that names them"
    assert blobs.get(blobs.put(b"made again for nothing", durable=False))
    assert len(synced) == 2


def test_a_write_that_fails_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=("Cs",)))


@given(json_values(st.none() | st.booleans() | numbers | texts, leaves=15))
@example({"\x00": '\x7f\u2028"\\', "a": [0.0, -0.0, 1.0, 1e15, 1e21, 1e-4, 1e-7, 5e-324, 0.1]})
@example({"\U0001f600": 1, "\uff5e": (2, [])})  # sorted by UTF-16, not by code points
def test_a_canonical_form_is_that_of_the_reference(value):
    assert canonical_json(value) == rfc8785.dumps(value)


@cases(
    "value, where",
    ({"a": [1, float("nan")]}, r"\$\.a\[1\]: nan"),
    ({"a": {"b": 2**60}}, r"\$\.a\.b: integer"),
    ({"a": "\ud800"}, r"\$\.a: text holds a lone surrogate"),
    ({"a": {1: 2}}, r"key 1 is not a string"),
    ({"a": b"x"}, r"\$\.a: bytes is not JSON"),
)
def test_what_has_no_canonical_form_is_named_by_its_path(value, where):
    with pytest.raises(ValueError, match=where):
        canonical_json(value)


def test_nesting_that_would_overflow_the_stack_is_a_value_error():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested deeper"):
        canonical_json(value)


@given(st.text(max_size=70) | st.text("0123456789abcdefABCDEF/.", min_size=62, max_size=66))
def test_a_sha256_is_64_lower_case_hex_digits_and_nothing_else(text):
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        assert Sha256(text) == text
    else:
        with pytest.raises(ValueError, match="64 lower-case hex digits"):
            Sha256(text)


def test_a_stated_sha256_is_read_in_either_case_and_with_its_prefix():
    name = sha256(b"x")
    assert {read_sha256(text) for text in (name, f"sha256:{name}", f" {name.upper()} ")} == {name}
    assert {read_sha256(text) for text in (None, "", "../x", f"sha512:{name}")} == {None}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with one file, and a trap of each kind beside it."""
    (tmp_path / "secret").write_bytes(b"of the host")
    root = tmp_path / "tree"
    (root / "a").mkdir(parents=True)
    (root / "a/file").write_bytes(b"here")
    (root / "a/link").symlink_to("file")
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    return root


@cases(
    "name, message",
    ("a/link", "it is a link"),
    ("folder/secret", "on its way is no folder"),
    ("folder/tree/a/file", "on its way is no folder"),
    ("loop", "it is a link"),
    ("pipe", "no plain file"),
    ("socket", "no plain file"),
    ("a", "no plain file"),
    ("", "no plain file"),
    ("none", "not there"),
    ("none/file", "not there"),
    ("a/file/more", "on its way is no folder"),
    ("../secret", "leads out of its folder"),
    ("a/../../secret", "leads out of its folder"),
    ("/etc/hostname", "leads out of its folder"),
    ("a\0b", "no name of a file"),
    ("\ud800", "no name of a file"),
    ("x" * 300, "too long"),
)
def test_only_plain_files_below_plain_folders_are_read(tree, name, message):
    held = len(os.listdir("/proc/self/fd"))
    with pytest.raises(untrusted_files.UnreadableFile, match=message) as refused:
        untrusted_files.open_file(tree, name)
    assert len(str(refused.value)) < 300
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_plain_file_is_read_up_to_its_cap_and_no_listing_or_pattern_follows_a_link(tree):
    assert untrusted_files.read_file(tree, "a/file", 4) == b"here"
    with pytest.raises(untrusted_files.UnreadableFile, match="a/file: larger than 3 bytes"):
        untrusted_files.read_file(tree, "a/file", 3)
    with pytest.raises(untrusted_files.UnreadableFile):
        untrusted_files.read_file(tree / "folder", "secret", 100)
    names = [str(path) for path in untrusted_files.list_files(tree)]
    assert names == ["folder", "loop", "pipe", "socket", "a/file", "a/link"]
    assert list(untrusted_files.list_files(tree, skip={"a"})) == [Path(name) for name in names[:4]]
    with pytest.raises(untrusted_files.UnreadableFile):
        list(untrusted_files.list_files(tree, "folder"))
    (tree / "a/b-1.info").mkdir()
    assert untrusted_files.match_paths(tree, "*/*.info") == [Path("a/b-1.info")]
    assert untrusted_files.match_paths(tree, "folder/*/a") == []
    assert untrusted_files.match_paths(tree, "*/f*") == [Path("a/file")]
    assert untrusted_files.match_paths(tree / "none", "*") == []


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are opened from now on."""
    seen, opened = [], os.open

    def count(name, *facts, **more):
        seen.append(str(name))
        return opened(name, *facts, **more)

    monkeypatch.setattr(os, "open", count)
    return seen


def test_a_deep_tree_is_opened_by_folders_up_to_a_depth_and_a_size(tmp_path, openings, monkeypatch):
    chain = tmp_path.joinpath(*["d"] * 60)
    chain.mkdir(parents=True)
    (chain / "file").write_bytes(b"")
    held = len(os.listdir("/proc/self/fd"))
    assert list(untrusted_files.list_files(tmp_path)) == [(chain / "file").relative_to(tmp_path)]
    assert len(openings) <= 61
    walk = untrusted_files.list_files(tmp_path)
    next(walk)
    walk.close()
    assert len(os.listdir("/proc/self/fd")) == held
    tmp_path.joinpath(*["d"] * 200).mkdir(parents=True)
    with pytest.raises(untrusted_files.UnreadableFile, match="more than 64 folders one in another"):
        list(untrusted_files.list_files(tmp_path))
    held = len(os.listdir("/proc/self/fd"))
    for cap, message in (("_MOST_FOLDERS", "than 5 folders"), ("_MOST_NAMES", "than 5 names")):
        monkeypatch.setattr(untrusted_files, cap, 5)
        with pytest.raises(untrusted_files.UnreadableFile, match=message):
            list(untrusted_files.list_files(tmp_path))
        monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == held


names = st.lists(st.sampled_from(["a", "file", "link", "folder", "..", ".", "pipe", "/", "secret"]))


@given(names)
def test_no_path_reads_anything_else(tmp_path_factory, parts):
    root = tmp_path_factory.mktemp("made")
    (root / "secret").write_bytes(b"of the host")
    (root / "tree/a").mkdir(parents=True)
    (root / "tree/a/file").write_bytes(b"here")
    (root / "tree/a/link").symlink_to(root / "secret")
    (root / "tree/a/folder").symlink_to(root)
    (root / "tree/folder").symlink_to("..")
    os.mkfifo(root / "tree/pipe")
    try:
        file = untrusted_files.read_file(root / "tree", "/".join(parts), 100)
    except untrusted_files.UnreadableFile:
        return
    assert file == b"here"


# --- a disk that fills up costs the line that did not fit, and no line before or after it
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


@cases("part", "add_history", "write_pointer")
def test_a_publication_that_stops_is_whole_or_absent_and_heals(tmp_path, monkeypatch, part):
    root = Tables(tmp_path)
    first = publish(root, 1)
    with monkeypatch.context() as patched:
        full = OSError(errno.ENOSPC, "No space left on device")
        patched.setattr(tables, part, Mock(side_effect=full))
        with pytest.raises(OSError, match="No space left"):
            publish(root, 2)
    current = root.head("things")
    assert current
    assert root.history("things")[-1] == current, "history ends with what is current"
    versions = [first, publish(root, 2)]
    assert [head.digest for head in root.history("things")] == versions
    lines = read_history(root.folder("things") / "HEADS.jsonl")
    assert [line["digest"] for line in lines] == versions


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


def list_files_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_repair_takes_torn_lines_out_keeps_the_old_file_and_leaves_a_whole_home(tmp_path):
    path = tmp_path / "quarantine" / "decisions.jsonl"
    for number in range(3):
        append_line(path, json.dumps({"n": number}))
    path.write_bytes(path.read_bytes() + TORN + b"\n\xff\n")
    publish(Tables(tmp_path / "tables"), 1)
    before = list_files_of(tmp_path)
    assert repair_home(tmp_path, dry=True).torn_lines == 2
    assert list_files_of(tmp_path) == before, "a look changes nothing"
    assert repair_home(tmp_path).torn_lines == 2
    assert path.read_text().count("\n") == 3
    backups = [item.read_bytes() for item in path.parent.glob("*.before-*")]
    assert backups == [before[path][0]]
    whole = list_files_of(tmp_path)
    assert repair_home(tmp_path).healthy
    assert list_files_of(tmp_path) == whole


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
