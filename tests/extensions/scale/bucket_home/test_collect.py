"""What no commit names goes from a bucket, after its time; what is lost of one is sent again."""

import json
import time
from pathlib import Path

import pytest

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable
from extensions.scale.bucket_home.collect import list_unnamed_objects
from extensions.scale.bucket_home.root import KEY, read_root
from extensions.upkeep.doctor.bucket import check_bucket
from extensions.upkeep.doctor.check import NOTICE, Home
from tests.extensions.scale.bucket_home.machines import (
    kill_machine,
    list_home,
    open_machine,
    read_value,
    write_rows,
)

obstore = pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")


def test_what_the_last_commits_do_not_name_goes_once_it_is_old(
    bucket: Bucket, tmp_path: Path
) -> None:
    one = open_machine(bucket, tmp_path / "1", versions=2)
    path = one.home / "reports" / "page.html"
    for value in (1, 2, 3):
        with one.hold():
            write_rows(one, value)
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"page {value}")
    obstore.put(bucket._store, "objects/sent-and-never-committed", b"x")
    obstore.put(bucket._store, "files/of-a-published-folder", b"x")
    assert list(list_unnamed_objects(one, time.time() - 3600)) == [], "nothing is old enough"
    found = list(list_unnamed_objects(one, time.time() + 3600))
    names = {item.name.partition("/")[0] for item in found}
    assert names == {"objects", "manifests"}
    assert "objects/sent-and-never-committed" in {item.name for item in found}
    sizes = {len(bucket.read(item.name, 1 << 20)[0]) for item in found}  # type: ignore[index]
    assert sizes == {item.size for item in found}
    obstore.put(bucket._store, found[0].name, b"sent again meanwhile")
    late = list(list_unnamed_objects(one, time.time() + 3600))
    assert all(item.remove() for item in late)
    assert list(list_unnamed_objects(one, time.time() + 3600)) == []
    assert bucket.find_time("files/of-a-published-folder")
    two = open_machine(bucket, tmp_path / "2")
    two.refresh()
    assert read_value(two) == 3
    assert list_home(two) == list_home(one)


def test_an_object_that_was_sent_anew_since_it_was_found_stays(
    bucket: Bucket, tmp_path: Path
) -> None:
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    obstore.put(bucket._store, "objects/unnamed", b"x")
    written = bucket.find_time("objects/unnamed")
    assert written is not None
    [item] = list_unnamed_objects(one, written + 0.001)
    time.sleep(0.01)
    obstore.put(bucket._store, "objects/unnamed", b"x")
    assert not item.remove()
    assert bucket.find_time("objects/unnamed")


def test_where_a_commit_cannot_be_read_nothing_is_found(bucket: Bucket, tmp_path: Path) -> None:
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    obstore.put(bucket._store, f"manifests/{read_root(bucket).version}.json", b"{}")
    with pytest.raises(BucketUnavailable, match="not what its name says"):
        list(list_unnamed_objects(one, time.time() + 3600))


def test_doctor_finds_what_is_lost_and_a_commit_of_all_sends_it_again(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extensions.upkeep.doctor.bucket.open_bucket", lambda _: bucket)
    assert check_bucket(Home(tmp_path, tmp_path / "state")).n == 0, "a home on this disk alone"
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1, paid="k")
    at = Home(one.home, one.state, everything=True)
    looked = check_bucket(at)
    assert looked.n > 3
    assert looked.findings == []
    lost, cut, other, *_ = sorted(bucket.list_objects("objects/"))
    bucket.remove(lost)
    obstore.put(bucket._store, cut, b"")
    size = bucket.list_objects(other)[other][0] if other in bucket.list_objects(other) else 0
    size = size or bucket.list_objects("objects/")[other][0]
    obstore.put(bucket._store, other, b"x" * size)
    [missing, wrong] = check_bucket(at).findings
    assert missing.problem == "2 objects of the last commit are gone or of another size"
    assert (wrong.thing, wrong.problem) == (other, "holds other bytes than its name")
    bucket.remove(other)
    with one.hold():
        one.commit(anew=True)
    assert check_bucket(at).findings == []
    assert read_root(bucket).number == 1, "the same commit, whole again"


def test_doctor_names_a_holder_that_is_gone_and_a_copy_that_is_not_whole(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extensions.upkeep.doctor.bucket.open_bucket", lambda _: bucket)
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    kill_machine(bucket, one)
    record = one.home / ".bucket.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "whole": False}))
    [copy, lease] = check_bucket(Home(one.home, one.state, now=1e13)).findings
    assert copy.fix == "toolmill bucket pull"
    assert lease.level == NOTICE
    assert "held by this machine until" in lease.problem
    obstore.put(bucket._store, KEY, b"{}")
    [unreadable] = check_bucket(Home(one.home, one.state)).findings
    assert "no root of a home" in unreadable.problem
