"""A blob goes only if nothing names it, and never one that is put meanwhile."""

import os
from pathlib import Path

import polars as pl
import pytest

from extensions.upkeep.collect import ReferencesUnknown, collect_references, list_unnamed_blobs
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

NAMES = TableSpec(name="names", key=("n",), columns={"n": pl.Int64, "text": pl.String})
NOW = 2e9


def make_old(warehouse: Warehouse) -> None:
    for path in warehouse.blobs.list_files():
        os.utime(path, (1e9, 1e9))


def collect(warehouse: Warehouse) -> set[str]:
    versions = (warehouse.home / "tables").glob("*/*/*.parquet")
    named = collect_references(versions, warehouse.state)
    found = list(list_unnamed_blobs(warehouse.blobs, named, NOW))
    return {one.name for one in found if one.remove()}


def test_what_a_table_an_effect_or_a_memo_names_stays(warehouse: Warehouse) -> None:
    put = warehouse.blobs.put
    shown, known, lost = put(b"shown"), put(b"known"), put(b"lost")
    rows = [{"n": 1, "text": f'{{"blob": "{shown}"}}'}]
    staged = warehouse.tables.stage(NAMES, NAMES.frame(rows))
    warehouse.tables.promote(staged, "run", [])
    warehouse.memo.put("validators", "url", {"etag": "x", "blob": known})
    paid = warehouse.ledger.once("llm", "k", lambda: EffectOutcome(b"paid"))
    make_old(warehouse)
    assert collect(warehouse) == {lost}
    assert warehouse.ledger.seen("k") == paid
    assert warehouse.blobs.has(shown)
    assert warehouse.blobs.has(known)


def test_where_the_ledger_is_damaged_nothing_goes(warehouse: Warehouse) -> None:
    warehouse.ledger.once("llm", "k", lambda: EffectOutcome(b"paid"))
    warehouse.ledger.close()
    path = warehouse.state / "ledger.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    with pytest.raises(ReferencesUnknown, match="none is removed"):
        collect(warehouse)


def test_where_a_version_is_damaged_nothing_goes(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.blobs.put(b"lost")
    make_old(warehouse)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    with pytest.raises(ReferencesUnknown, match="none is removed"):
        collect_references([broken], warehouse.state)


def test_a_blob_that_is_put_after_it_was_found_stays(warehouse: Warehouse) -> None:
    """The same bytes again write no file: the put makes the old one young, and it is kept."""
    sha = warehouse.blobs.put(b"old")
    make_old(warehouse)
    [found] = list_unnamed_blobs(warehouse.blobs, set(), 1.5e9)
    assert warehouse.blobs.put(b"old") == sha
    assert not found.remove()
    assert warehouse.blobs.get(sha) == b"old"
    make_old(warehouse)
    assert found.remove()
    assert not found.remove()
    assert warehouse.blobs.put(b"old") == sha
    assert warehouse.blobs.get(sha) == b"old"
