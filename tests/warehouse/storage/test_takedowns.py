"""What is taken down is in no table of any day; a record that cannot be read lets nothing out."""

import json
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from orchestration.tables import TABLES
from warehouse.storage.tables import Tables, TableSpec
from warehouse.storage.takedowns import (
    LIFTED,
    SERVER,
    TAKEN,
    TakedownError,
    Takedowns,
    Tombstone,
    find_taken,
    read_takedowns,
    record_tombstone,
)

NAMES = ["id", "server_id", "other_server_id", "tool", "listing_id", "contract_digest", "calls"]
SPEC = TableSpec(
    "facts",
    key=("id",),
    columns={
        **dict.fromkeys([*NAMES, "servers", "negatives", "text", "tools_blob"], pl.String),
        "server_ids": pl.List(pl.String),
        "seen": pl.String,
    },
    volatile=("seen",),
)
A, B = "c1:" + "a" * 64, "c1:" + "b" * 64
ROWS: list[dict[str, Any]] = [
    {"id": "clear", "server_id": "npm:b", "contract_digest": B, "negatives": json.dumps([A, B])},
    {"id": "own", "server_id": "npm:a", "contract_digest": A},
    {"id": "longer name", "server_id": "npm:a-more"},
    {"id": "beside", "server_id": "npm:b", "other_server_id": "npm:a"},
    {"id": "alias", "server_ids": ["npm:b", "npm:a"]},
    {"id": "listing", "listing_id": "registry:a"},
    {"id": "calls it", "server_id": "npm:b", "calls": json.dumps([{"contract_digest": A}])},
    {"id": "played it", "servers": json.dumps(["npm:b", "npm:a"])},
    {"id": "tool", "server_id": "npm:b", "tool": "leaky"},
]
IDS = {row["id"] for row in ROWS}


def make_tombstone(name: str, kind: str, verdict: str = TAKEN, **reach: list | dict) -> Tombstone:
    at = "2026-11-26T00:00:00Z"
    return Tombstone(name, kind, verdict, "ann", at, "asked by mail", json.dumps(reach))


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    result = Tables(tmp_path / "tables")
    result.promote(result.stage(SPEC, SPEC.frame(ROWS)), "run", [])
    return result


def read_ids(tables: Tables, as_of: float | None = None) -> set[str]:
    return set(tables.read(SPEC, as_of=as_of)["id"])


def test_each_way_of_naming_a_server_is_reached_now_and_as_of_before(
    tables: Tables, tmp_path: Path
) -> None:
    before = time.time()
    reach = {"servers": ["npm:a"], "listings": ["registry:a"], "shown": [A]}
    record_tombstone(tmp_path, make_tombstone("npm:a", SERVER, **reach))
    gone = {"own", "beside", "alias", "listing", "calls it", "played it"}
    assert read_ids(tables) == read_ids(tables, before) == IDS - gone
    row = tables.read(SPEC).row(by_predicate=pl.col("id") == "clear", named=True)
    assert json.loads(row["negatives"]) == [B]
    staged = tables.stage(SPEC, SPEC.frame(ROWS), "again")
    file = tables.folder("facts", "again") / f"{staged.digest}.parquet"
    assert set(pl.read_parquet(file)["id"]) == IDS - gone, "nor does a new version hold it"


def test_a_tool_goes_and_its_neighbours_stay(tables: Tables, tmp_path: Path) -> None:
    record_tombstone(tmp_path, make_tombstone("t", "tool", tools=[["npm:b", "leaky"]]))
    assert read_ids(tables) == IDS - {"tool"}


def test_what_was_lifted_is_read_again(tables: Tables, tmp_path: Path) -> None:
    record_tombstone(tmp_path, make_tombstone("npm:a", SERVER, servers=["npm:a"]))
    assert "own" not in read_ids(tables)
    record_tombstone(tmp_path, make_tombstone("npm:a", SERVER, LIFTED, servers=["npm:a"]))
    assert read_ids(tables) == IDS
    assert not read_takedowns(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        json.dumps({"name": "npm:a"}),
        json.dumps({**make_tombstone("npm:a", SERVER).__dict__, "reach": '{"servers": [3]}'}),
        json.dumps({**make_tombstone("npm:a", SERVER).__dict__, "kind": "rumour"}),
        json.dumps({**make_tombstone("npm:a", SERVER).__dict__, "why": ""}),
    ],
)
def test_a_record_that_cannot_be_read_lets_nothing_out(
    tables: Tables, tmp_path: Path, line: str
) -> None:
    (tmp_path / "takedowns").mkdir()
    (tmp_path / "takedowns" / "record.jsonl").write_text(line + "\n")
    with pytest.raises(TakedownError, match=r"record\.jsonl:1"):
        tables.read(SPEC)


def test_every_column_that_names_a_server_is_looked_at() -> None:
    """A table with another name for one is seen here, not by who finds it in an export."""
    from warehouse.storage.takedowns import _SERVERS

    known = {*_SERVERS, "server_ids", "listing_id", "servers"}
    # Names in texts that no server wrote, or that say nothing of it: a marketplace's own facts.
    other = {"server_name", "server_version"}
    named = {
        column
        for spec in TABLES.values()
        for column in spec.columns
        if column.startswith("server") or column.endswith(("server_id", "listing_id"))
    }
    assert named - other <= known


@pytest.mark.parametrize("rows", [[], ROWS])
def test_a_table_none_of_whose_columns_could_name_it_has_nothing_taken(rows: list[dict]) -> None:
    takedowns = Takedowns(servers=frozenset({"npm:a"}))
    frame = SPEC.frame(rows).select("id")
    hit = find_taken(takedowns, frame)
    assert (hit.dtype, hit.to_list()) == (pl.Boolean, [False] * len(rows))
