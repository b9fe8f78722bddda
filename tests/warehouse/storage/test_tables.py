"""Versions are immutable, the pointer moves by promote, and what is taken down is in no table."""

import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.upkeep.home_tables import TABLES
from extensions.upkeep.storage_repair import repair_home
from tests.support.cases import cases
from warehouse.storage.files import PointerBroken
from warehouse.storage.tables import Tables, TableSpec, plan_keys
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

SPEC = TableSpec(
    "things",
    key=("id",),
    columns={"id": pl.String, "value": pl.Int64, "tags": pl.List(pl.String), "seconds": pl.Float64},
    volatile=("seconds",),
)


def rows(**values: int) -> pl.DataFrame:
    return SPEC.frame([{"id": name, "value": value} for name, value in values.items()])


def publish(tables: Tables, frame: pl.DataFrame, partition: str | None = None) -> str:
    return tables.promote(tables.stage(SPEC, frame, partition), "run", []).digest


def test_a_table_never_published_reads_as_no_rows_and_a_column_added_later_as_null(tmp_path):
    frame = Tables(tmp_path).read(SPEC)
    assert (frame.columns, len(frame)) == (list(SPEC.columns), 0)
    tables = Tables(tmp_path)
    publish(tables, rows(a=1))
    wider = TableSpec("things", ("id",), {**SPEC.columns, "colour": pl.String}, SPEC.volatile)
    assert tables.read(wider)["colour"].to_list() == [None]


def test_volatile_figures_are_kept_but_make_no_version(tmp_path):
    tables = Tables(tmp_path)
    first = publish(tables, SPEC.frame([{"id": "a", "value": 1, "seconds": 0.5}]))
    assert first == publish(tables, SPEC.frame([{"id": "a", "value": 1, "seconds": 9.0}]))
    assert tables.read(SPEC)["seconds"].to_list() == [9.0]
    assert len((tables.folder("things") / "HEADS.jsonl").read_text().splitlines()) == 1


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def timed(seconds: float, value: int = 1) -> pl.DataFrame:
    return SPEC.frame([{"id": "a", "value": value, "seconds": seconds}])


@cases("value", 1, 2)
def test_a_staged_version_is_invisible_and_a_kill_harms_no_table(tmp_path, monkeypatch, value):
    tables = Tables(tmp_path)
    publish(tables, timed(0.5))
    before = read_files(tables.folder("things"))
    staged = tables.stage(SPEC, timed(9.0, value))
    assert read_files(tables.folder("things")).items() >= before.items()
    assert tables.read(SPEC).rows() == [("a", 1, None, 0.5)]
    stop = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patched:
        patched.setattr("warehouse.storage.tables.write_pointer", stop)
        patched.setattr("warehouse.storage.tables.add_history", stop)
        with pytest.raises(KeyboardInterrupt):
            tables.promote(staged, "run", [])
    assert tables.read(SPEC).rows() == [("a", 1, None, 9.0 if value == 1 else 0.5)]
    tables.promote(staged, "run", [])
    assert tables.read(SPEC).rows() == [("a", value, None, 9.0)]


@given(st.permutations(["a", "b", "c", "d"]))
def test_row_order_does_not_change_the_version_and_another_schema_version_does(order):
    frame = SPEC.frame([{"id": name, "value": ord(name)} for name in order])
    assert SPEC.digest(frame) == SPEC.digest(rows(a=97, b=98, c=99, d=100))
    newer = TableSpec("things", ("id",), SPEC.columns, SPEC.volatile, schema_version=2)
    assert newer.digest(frame) != SPEC.digest(frame)


def test_partitions_are_apart_and_read_together(tmp_path):
    tables = Tables(tmp_path)
    publish(tables, rows(a=1), "one")
    publish(tables, rows(b=2), "two")
    assert tables.partitions("things") == ["one", "two"]
    assert tables.read(SPEC, "one")["id"].to_list() == ["a"]
    assert sorted(tables.read(SPEC)["id"].to_list()) == ["a", "b"]


def test_as_of_reads_what_was_current_then_and_going_back_publishes_the_old_version(tmp_path):
    tables = Tables(tmp_path)
    old = publish(tables, rows(a=1))
    between = time.time()
    publish(tables, rows(a=2))
    assert tables.read(SPEC, as_of=between)["value"].to_list() == [1]
    assert len(tables.read(SPEC, as_of=between - 3600)) == 0
    assert publish(tables, rows(a=1)) == old
    history = (tables.folder("things") / "HEADS.jsonl").read_text().splitlines()
    assert [json.loads(line)["digest"] for line in history].count(old) == 2


@cases(
    "bad, message",
    ([{"id": "a"}, {"id": "a"}], "occurs 2x"),
    ([{"id": None}], "null in key"),
    ([{"id": "a", "colour": 1}], r"unknown columns \['colour'\]"),
    ([{"id": "a", "value": "x"}], r"table things, column value: expected Int64.*String.*x"),
    ([{"id": "a", "value": 5.7}], r"table things, column value: expected Int64"),
)
def test_rows_that_break_the_table_are_named(bad, message):
    with pytest.raises(ValueError, match=message):
        SPEC.frame(bad)


names = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"), max_size=6)


@given(names, names, st.sets(st.sampled_from("abcdef")))
def test_a_plan_sorts_every_key_into_exactly_one_class(previous, wanted, retry):
    result = plan_keys(previous, wanted, retry)
    listing = [*result.new, *result.stale, *result.gone, *result.unchanged]
    assert sorted(listing) == sorted(previous.keys() | wanted.keys())
    assert all(previous[key] == wanted[key] and key not in retry for key in result.unchanged)
    assert not plan_keys(wanted, wanted).due


@given(names, names)
def test_changes_are_counted_as_a_plan_over_all_that_makes_a_version(previous, wanted):
    old, new = (
        SPEC.frame(
            {"id": key, "value": int(value), "tags": [value], "seconds": seconds}
            for key, value in found.items()
        )
        for found, seconds in ((previous, 0.5), (wanted, 9.0))
    )
    plan = plan_keys(previous, wanted)
    expected = {name: len(getattr(plan, name)) for name in ("new", "stale", "gone", "unchanged")}
    assert SPEC.count_changes(old, new) == expected


@cases("text", "", "{half", "[1]", '{"digest": "a"}')
def test_a_broken_pointer_names_its_file_and_the_fix(tmp_path, text):
    tables = Tables(tmp_path)
    tables.promote(tables.stage(SPEC, SPEC.frame([])), "run", [])
    (tmp_path / SPEC.name / "_" / "HEAD.json").write_text(text)
    with pytest.raises(PointerBroken, match=r"HEAD\.json.*toolmill doctor --fix.*materialize"):
        tables.head(SPEC.name)


def test_a_missing_pointer_beside_a_history_is_broken_and_no_empty_table(tmp_path):
    tables = Tables(tmp_path / "tables")
    for partition in ("here", "lost"):
        publish(tables, rows(a=1), partition)
    (tables.folder(SPEC.name, "lost") / "HEAD.json").unlink()
    assert tables.partitions(SPEC.name) == ["here", "lost"]
    for read in (
        lambda: tables.head(SPEC.name, "lost"),
        lambda: tables.read(SPEC, "lost"),
        lambda: tables.read(SPEC),
        lambda: tables.count_rows(SPEC.name),
        lambda: publish(tables, rows(b=2), "lost"),
    ):
        with pytest.raises(PointerBroken, match=r"lost/HEAD.json: is missing.*doctor --fix"):
            read()
    assert len(tables.history(SPEC.name, "lost")) == 1
    assert repair_home(tmp_path).pointers == 1
    assert len(tables.read(SPEC)) == 2


NAMES = ["id", "server_id", "other_server_id", "tool", "listing_id", "contract_digest", "calls"]
OF_SERVERS = TableSpec(
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
    result.promote(result.stage(OF_SERVERS, OF_SERVERS.frame(ROWS)), "run", [])
    return result


def read_ids(tables: Tables, as_of: float | None = None) -> set[str]:
    return set(tables.read(OF_SERVERS, as_of=as_of)["id"])


def test_each_way_of_naming_a_server_is_reached_now_and_as_of_before(tables, tmp_path):
    before = time.time()
    reach = {"servers": ["npm:a"], "listings": ["registry:a"], "shown": [A]}
    record_tombstone(tmp_path, make_tombstone("npm:a", SERVER, **reach))
    gone = {"own", "beside", "alias", "listing", "calls it", "played it"}
    assert read_ids(tables) == read_ids(tables, before) == IDS - gone
    row = tables.read(OF_SERVERS).row(by_predicate=pl.col("id") == "clear", named=True)
    assert json.loads(row["negatives"]) == [B]
    staged = tables.stage(OF_SERVERS, OF_SERVERS.frame(ROWS), "again")
    file = tables.folder("facts", "again") / f"{staged.digest}.parquet"
    assert set(pl.read_parquet(file)["id"]) == IDS - gone, "nor does a new version hold it"


def test_a_tool_goes_and_its_neighbours_stay_and_what_was_lifted_is_read_again(tables, tmp_path):
    record_tombstone(tmp_path, make_tombstone("t", "tool", tools=[["npm:b", "leaky"]]))
    assert read_ids(tables) == IDS - {"tool"}
    record_tombstone(tmp_path, make_tombstone("t", "tool", LIFTED, tools=[["npm:b", "leaky"]]))
    assert read_ids(tables) == IDS
    assert not read_takedowns(tmp_path)


@cases(
    "line",
    "{",
    json.dumps({"name": "npm:a"}),
    json.dumps({**make_tombstone("npm:a", SERVER).__dict__, "reach": '{"servers": [3]}'}),
    json.dumps({**make_tombstone("npm:a", SERVER).__dict__, "kind": "rumour"}),
    json.dumps({**make_tombstone("npm:a", SERVER).__dict__, "why": ""}),
)
def test_a_record_that_cannot_be_read_lets_nothing_out(tables, tmp_path, line):
    (tmp_path / "takedowns").mkdir()
    (tmp_path / "takedowns" / "record.jsonl").write_text(line + "\n")
    with pytest.raises(TakedownError, match=r"record\.jsonl:1"):
        tables.read(OF_SERVERS)


def test_every_column_that_names_a_server_is_looked_at():
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


@cases("rows", [], ROWS)
def test_a_table_none_of_whose_columns_could_name_it_has_nothing_taken(rows):
    takedowns = Takedowns(servers=frozenset({"npm:a"}))
    hit = find_taken(takedowns, OF_SERVERS.frame(rows).select("id"))
    assert (hit.dtype, hit.to_list()) == (pl.Boolean, [False] * len(rows))
