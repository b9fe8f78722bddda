"""A bucket that somebody else can write to: nothing is fetched that is not what a commit names, and
nothing is written outside the home or into what a machine keeps for itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable
from extensions.scale.bucket_home.manifest import get_manifest_key, get_object_key, is_carried
from extensions.scale.bucket_home.root import KEY, read_root
from tests.extensions.scale.bucket_home.machines import (
    change_root,
    open_machine,
    read_value,
    write_rows,
)
from warehouse.storage.digest import sha256

obstore = pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")


def commit_manifest(bucket: Bucket, **changes: Any) -> None:
    """Moves the root to a manifest that is true to its name and holds whatever is given."""
    root = read_root(bucket)
    found = bucket.read(get_manifest_key(root.version), 1 << 26) if root.version else None
    body = json.loads(found[0]) if found else {"format": 1, "layout": 3, "home": {}, "state": {}}
    facts = {"number": root.number + 1, "previous": root.version, "program": "9.9"}
    data = json.dumps({**body, **facts, **changes}).encode()
    obstore.put(bucket._store, get_manifest_key(sha256(data)), data)
    change_root(bucket, version=sha256(data), number=root.number + 1, previous=root.version)


def list_all(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("side", "name"),
    [
        *(("home", name) for name in ("../x", "/etc/x", "a/../../x", ".", "a//b", "", "a\0b")),
        *(("home", name) for name in ("a/./b", "a/", "\ud800", "state/ledger.db", "artifacts/x")),
        *(("home", name) for name in ("cache/x", ".bucket.json", "a/.hidden", "x.lock")),
        *(("state", name) for name in ("dagster/dagster.yaml", "buckets/x.json", "run.lock")),
        ("state", "volumes/../dagster/dagster.yaml"),
    ],
)
def test_what_leads_out_of_a_home_or_into_what_a_machine_keeps_is_no_file_of_it(
    side: str, name: str
) -> None:
    assert not is_carried(side, name)
    assert is_carried("state", "volumes/s/.env")


def test_a_commit_that_names_a_file_elsewhere_is_refused_whole(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1)
    obstore.put(bucket._store, get_object_key(sha256(b"x")), b"x")
    commit_manifest(bucket, home={"../x": [sha256(b"x"), 1, 0o644, 0, 0, 0]})
    with pytest.raises(BucketUnavailable, match="no file of a home"):
        two.refresh()
    locks = {"2/.bucket.lock", "2/.bucket.users.lock"}
    assert list_all(tmp_path) == {f"1/{name}" for name in list_all(one.home)} | locks


@pytest.mark.parametrize(
    "row",
    [
        ["zz", 1, 0o644, 0, 0, 0],
        [sha256(b"x"), -1, 0o644, 0, 0, 0],
        [sha256(b"x"), 1, 0o644, -1, 0, 0],
        [sha256(b"x"), 1, 0o644, 2**70, 0, 0],
        [sha256(b"x"), 1, 0o644, 0, 2**40, 0],
        [sha256(b"x"), 1],
        "x",
        None,
    ],
)
def test_a_row_that_says_no_file_is_refused(bucket: Bucket, tmp_path: Path, row: Any) -> None:
    commit_manifest(bucket_with_root(bucket, tmp_path), home={"reports/x": row})
    with pytest.raises(BucketUnavailable, match=r"no commit of ours|no file of a home"):
        open_machine(bucket, tmp_path / "2").refresh()


def bucket_with_root(bucket: Bucket, tmp_path: Path) -> Bucket:
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    return bucket


def test_a_link_on_the_way_leads_nowhere_and_no_file_runs_as_its_owner(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket_with_root(bucket, tmp_path)
    two, outside = open_machine(bucket, tmp_path / "2"), tmp_path / "outside"
    two.refresh()
    outside.mkdir()
    volume = two.state / "volumes" / "s"
    volume.mkdir(parents=True)
    (volume / "link").symlink_to(outside)
    obstore.put(bucket._store, get_object_key(sha256(b"x")), b"x")
    commit_manifest(bucket, state={"volumes/s/link/x": [sha256(b"x"), 1, 0o4755, 0, 0, 0]})
    two.refresh()
    assert list(outside.iterdir()) == []
    assert (volume / "link" / "x").read_bytes() == b"x"
    assert (volume / "link" / "x").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 10_000_000])
def test_a_blob_with_other_bytes_than_its_name_leaves_the_copy_as_it_was(
    bucket: Bucket, tmp_path: Path, data: bytes
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1)
    two.refresh()
    before = set(bucket.list_objects("objects/"))
    with one.hold():
        write_rows(one, 2)
    for key in set(bucket.list_objects("objects/")) - before:
        obstore.put(bucket._store, key, data)
    told: list[str] = []
    object.__setattr__(two, "tell", told.append)
    two.refresh()
    assert "other bytes than its name" in told[0]
    assert read_value(two) == 1
    with pytest.raises(BucketUnavailable, match="other bytes"):
        two.refresh(strict=True)
    with pytest.raises(BucketUnavailable, match="other bytes"), two.hold():
        pass
    assert read_root(bucket).lease is None, "given back, as nothing can be done with it"
    assert not [path for path in two.home.rglob(".*.*.*") if "bucket" not in path.name]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, r"newer version of toolmill \(9.9; format 2, expected 1\)"),
        ({"layout": 99}, r"newer version of toolmill \(9.9; layout 99, expected 3\)"),
        ({"layout": None}, "another version"),
        ({"home": []}, "no commit of ours"),
    ],
)
def test_a_commit_of_another_version_is_one_line_that_names_it(
    bucket: Bucket, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    commit_manifest(bucket_with_root(bucket, tmp_path), **changes)
    with pytest.raises(BucketUnavailable, match=words):
        open_machine(bucket, tmp_path / "2").refresh()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        *((data, "name another prefix") for data in (b"", b"[]", b"{}", b"[" * 50_000)),
        (b'{"format": 2}', "newer version of toolmill"),
        (
            b'{"format":1,"version":"","number":"1","previous":"","at":0,"lease":null}',
            "no root of a home",
        ),
        (
            b'{"format":1,"version":"x","number":1,"previous":"","at":0,"lease":{"a":1}}',
            "no root of a home",
        ),
    ],
)
def test_a_root_that_is_none_of_ours_is_named(
    bucket: Bucket, tmp_path: Path, data: bytes, words: str
) -> None:
    obstore.put(bucket._store, KEY, data)
    one = open_machine(bucket, tmp_path / "1")
    for work in (one.refresh, lambda: one.hold().__enter__()):
        with pytest.raises(BucketUnavailable, match=words):
            work()
