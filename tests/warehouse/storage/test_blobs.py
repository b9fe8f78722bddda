"""Blobs are named by their bytes and verified when read."""

import os
import stat
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from warehouse.storage.blobs import BlobCorrupt, Blobs
from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically


@given(st.binary(max_size=2000))
def test_what_is_put_is_got_under_its_sha256(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    blobs = Blobs(tmp_path_factory.mktemp("blobs"))
    sha = blobs.put(data)
    assert sha == sha256(data)
    assert blobs.get(sha) == data
    assert blobs.put(data) == sha


def test_an_absent_blob_is_a_key_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no blob abcd"):
        Blobs(tmp_path).get("abcd" * 16)


@pytest.mark.parametrize("name", ["../../state/ledger.db", "/etc/passwd", "", "ab"])
def test_only_a_sha256_becomes_a_path(tmp_path: Path, name: str) -> None:
    for use in (Blobs(tmp_path).path, Blobs(tmp_path).has, Blobs(tmp_path).get):
        with pytest.raises(ValueError, match="is not a SHA-256"):
            use(name)


@pytest.mark.parametrize("damage", [b"not zstd", b""])
def test_a_damaged_blob_says_what_to_do(tmp_path: Path, damage: bytes) -> None:
    blobs = Blobs(tmp_path)
    sha = blobs.put(b"good")
    blobs.path(sha).write_bytes(damage)
    with pytest.raises(BlobCorrupt, match=f"{sha}.*run again"):
        blobs.get(sha)


@pytest.mark.parametrize("damage", [b"", b"not zstd", b"\x28\xb5\x2f\xfd", None])
def test_putting_a_blob_again_replaces_what_is_wrong(tmp_path: Path, damage: bytes | None) -> None:
    blobs = Blobs(tmp_path)
    sha = blobs.put(b"good")
    other = blobs.path(blobs.put(b"other")).read_bytes()
    blobs.path(sha).write_bytes(other if damage is None else damage)
    assert not blobs.has(sha)
    assert blobs.put(b"good") == sha
    assert blobs.get(sha) == b"good"


def test_a_frame_that_claims_another_size_is_corrupt(tmp_path: Path) -> None:
    """The size in a frame's header is text of the disk too: it is read no further than the cap."""
    blobs = Blobs(tmp_path)
    blobs.max_bytes = 1000
    sha = sha256(bytes(100_000))
    write_atomically(blobs.path(sha), zstandard.ZstdCompressor().compress(bytes(100_000)))
    with pytest.raises(BlobCorrupt):
        blobs.get(sha)


def test_a_blob_and_its_name_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle)[0]))
    )
    Blobs(tmp_path).put(b"paid for")
    assert synced == [False, True], "the bytes first, then the folder that names them"


def test_a_blob_with_another_ones_bytes_is_corrupt(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    one, two = blobs.put(b"one"), blobs.put(b"two")
    blobs.path(one).write_bytes(blobs.path(two).read_bytes())
    with pytest.raises(BlobCorrupt, match="other bytes"):
        blobs.get(one)


def test_a_write_that_fails_leaves_the_old_file_and_no_half_one(
    tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
