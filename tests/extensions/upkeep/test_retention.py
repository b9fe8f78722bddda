"""Retention keeps what an as-of read within it needs, and every blob that something names."""

import os
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.upkeep.collect import (
    ReferencesUnknown,
    choose_versions,
    collect_references,
    list_kept_versions,
    list_old_versions,
    list_unnamed_blobs,
)
from extensions.upkeep.policy import DAY, GarbageLimits
from tests.support.aged import make_old
from tests.support.cases import cases
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.files import PointerBroken
from warehouse.storage.tables import TableHead, Tables, TableSpec, VersionGone
from warehouse.store import Warehouse

NUMBERS = TableSpec(
    name="numbers", key=("n",), columns={"n": pl.Int64, "s": pl.Float64}, volatile=("s",)
)
TODAY = time.time()
NOW = 4e9  # later than any test runs
PUBLICATIONS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.floats(0, 1_000)), min_size=1, max_size=12
).map(
    lambda held: [
        TableHead(name, 1, "r", NOW - (1_000 - day) * DAY)
        for name, day in sorted(held, key=lambda x: x[1])
    ]
)


@given(PUBLICATIONS, st.integers(1, 4), st.floats(0, 1_000))
def test_every_moment_of_the_last_days_can_be_read(heads, versions, days):
    kept = choose_versions(heads, GarbageLimits(versions=versions, days=days), NOW)
    since = NOW - days * DAY
    for moment in [since, *(head.at for head in heads if head.at >= since), NOW]:
        assert set([head.digest for head in heads if head.at <= moment][-1:]) <= kept
    assert set(list(dict.fromkeys(head.digest for head in reversed(heads)))[:versions]) <= kept


def publish(tables: Tables, n: int, *, days_ago: float = 0.0) -> str:
    head = tables.promote(tables.stage(NUMBERS, NUMBERS.frame([{"n": n, "s": 0.5}])), "run", [])
    for path in tables.folder("numbers").glob(f"{head.digest}*"):
        make_old(path, TODAY - days_ago * DAY)
    return head.digest


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "tables")


@pytest.fixture
def two_versions(tables: Tables) -> str:
    first = publish(tables, 1, days_ago=50)
    publish(tables, 2, days_ago=40)
    return first


def collect(
    tables: Tables, *, before: float = TODAY - DAY, policy: GarbageLimits | None = None
) -> list[str]:
    policy = policy or GarbageLimits(versions=1, days=0)
    kept = list_kept_versions(tables, policy, NOW, ())
    return [version.name for version in list_old_versions(tables, kept, before) if version.remove()]


def test_an_old_version_goes_and_a_read_of_its_time_says_so(tables, two_versions):
    at = tables.history("numbers")[0].at
    assert collect(tables, before=TODAY - 60 * DAY) == [], "what is young stays"
    assert collect(tables, policy=GarbageLimits(versions=2, days=0)) == []
    assert len(collect(tables)) == 2, "its rows and their volatile columns"
    assert [head.digest == two_versions for head in tables.history("numbers")] == [False]
    with pytest.raises(VersionGone, match=r"retention has taken away .* later time"):
        tables.read(NUMBERS, as_of=at)
    assert tables.read(NUMBERS)["n"].to_list() == [2]


@cases("current", True, False)
def test_a_version_that_is_staged_again_or_made_current_stays(tables, two_versions, current):
    """Found as garbage, then staged by a run that goes on: its promotion must find it."""
    kept = list_kept_versions(tables, GarbageLimits(versions=1, days=0), NOW, ())
    found = list(list_old_versions(tables, kept, TODAY - DAY))
    if current:
        publish(tables, 1, days_ago=50)
        assert [one for one in found if one.remove()] == []
        assert tables.head("numbers").digest == two_versions  # type: ignore[union-attr]
        return
    staged = tables.stage(NUMBERS, NUMBERS.frame([{"n": 1, "s": 0.7}]))
    gone = [one.name for one in found if one.remove()]
    assert all("volatile" in name for name in gone), "promotion writes those anew"
    tables.promote(staged, "run", [])
    assert tables.read(NUMBERS).rows() == [(1, 0.7)]


@cases("damage", "pointer", "torn", "lost")
def test_nothing_goes_of_a_table_without_a_readable_history(tables, two_versions, damage):
    """A version whose line is torn would pass for one that was never current."""
    path = tables.folder("numbers") / "HEADS.jsonl"
    first, second = path.read_text().splitlines()
    if damage == "pointer":
        (tables.folder("numbers") / "HEAD.json").write_text("{")
    elif damage == "torn":
        path.write_text(f"{first[:20]}\n{second}\n")
    else:
        path.unlink()
    with pytest.raises(PointerBroken):
        collect(tables)
    assert len(list(tables.folder("numbers").glob("*.parquet"))) == 4
    if damage != "pointer":
        with pytest.raises(PointerBroken, match="cannot be read"):
            list_kept_versions(tables, GarbageLimits(), NOW, {"numbers"})


NAMES = TableSpec(name="names", key=("n",), columns={"n": pl.Int64, "text": pl.String})
LATER = 2e9


def age_blobs(warehouse: Warehouse) -> None:
    for path in warehouse.blobs.list_files():
        os.utime(path, (1e9, 1e9))


def collect_blobs(warehouse: Warehouse) -> set[str]:
    named = collect_references((warehouse.home / "tables").glob("*/*/*.parquet"), warehouse.state)
    found = list(list_unnamed_blobs(warehouse.blobs, named, LATER))
    return {one.name for one in found if one.remove()}


def test_what_a_table_an_effect_or_a_memo_names_stays_or_all_where_damaged(warehouse, tmp_path):
    put = warehouse.blobs.put
    shown, known, lost = put(b"shown"), put(b"known"), put(b"lost")
    rows = [{"n": 1, "text": f'{{"blob": "{shown}"}}'}]
    warehouse.tables.promote(warehouse.tables.stage(NAMES, NAMES.frame(rows)), "run", [])
    warehouse.memo.put("validators", "url", {"etag": "x", "blob": known})
    paid = warehouse.ledger.once("llm", "k", lambda: EffectOutcome(b"paid"))
    age_blobs(warehouse)
    assert collect_blobs(warehouse) == {lost}
    assert warehouse.ledger.seen("k") == paid
    assert all(map(warehouse.blobs.has, (shown, known)))
    warehouse.ledger.once("llm", "k", lambda: EffectOutcome(b"paid"))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    with pytest.raises(ReferencesUnknown, match="none is removed"):
        collect_references([broken], warehouse.state)
    warehouse.ledger.close()
    path = warehouse.state / "ledger.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    with pytest.raises(ReferencesUnknown, match="none is removed"):
        collect_blobs(warehouse)


def test_a_blob_that_is_put_after_it_was_found_stays(warehouse):
    """The same bytes again write no file: the put makes the old one young, and it is kept."""
    sha = warehouse.blobs.put(b"old")
    age_blobs(warehouse)
    [found] = list_unnamed_blobs(warehouse.blobs, set(), 1.5e9)
    assert warehouse.blobs.put(b"old") == sha
    assert not found.remove()
    assert warehouse.blobs.get(sha) == b"old"
    age_blobs(warehouse)
    assert found.remove()
    assert not found.remove()
    assert warehouse.blobs.put(b"old") == sha
    assert warehouse.blobs.get(sha) == b"old"
