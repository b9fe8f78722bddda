"""Versions are immutable and named by content; the pointer moves only by promote."""

import json
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.storage.files import PointerBroken
from warehouse.storage.repair import repair_home
from warehouse.storage.tables import Tables, TableSpec, plan_keys

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


def test_a_table_never_published_reads_as_no_rows_with_its_columns(tmp_path: Path) -> None:
    frame = Tables(tmp_path).read(SPEC)
    assert frame.columns == list(SPEC.columns)
    assert len(frame) == 0


def test_a_staged_version_is_invisible_until_it_is_promoted(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    publish(tables, rows(a=1))
    staged = tables.stage(SPEC, rows(a=2))
    assert tables.read(SPEC)["value"].to_list() == [1]
    tables.promote(staged, "run", [])
    assert tables.read(SPEC)["value"].to_list() == [2]


def test_volatile_figures_are_kept_but_make_no_version(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    first = publish(tables, SPEC.frame([{"id": "a", "value": 1, "seconds": 0.5}]))
    second = publish(tables, SPEC.frame([{"id": "a", "value": 1, "seconds": 9.0}]))
    assert first == second
    assert tables.read(SPEC)["seconds"].to_list() == [9.0]
    assert len((tables.folder("things") / "HEADS.jsonl").read_text().splitlines()) == 1


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def timed(seconds: float, value: int = 1) -> pl.DataFrame:
    return SPEC.frame([{"id": "a", "value": value, "seconds": seconds}])


def test_a_staged_version_changes_no_published_figure(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    publish(tables, timed(0.5))
    before = read_files(tables.folder("things"))
    staged = tables.stage(SPEC, timed(9.0))
    assert read_files(tables.folder("things")) == before
    tables.promote(staged, "run", [])
    assert tables.read(SPEC)["seconds"].to_list() == [9.0]


@pytest.mark.parametrize("value", [1, 2])
def test_a_kill_before_the_pointer_moves_leaves_a_readable_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: int
) -> None:
    tables = Tables(tmp_path)
    publish(tables, timed(0.5))
    staged = tables.stage(SPEC, timed(9.0, value))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("warehouse.storage.tables.write_pointer", stop)
        patched.setattr("warehouse.storage.tables.add_history", stop)
        with pytest.raises(KeyboardInterrupt):
            tables.promote(staged, "run", [])
    assert tables.read(SPEC)["value"].to_list() == [1]
    assert tables.read(SPEC)["seconds"].to_list() == [9.0 if value == 1 else 0.5]
    tables.promote(staged, "run", [])
    assert tables.read(SPEC).rows() == [("a", value, None, 9.0)]


@given(st.permutations(["a", "b", "c", "d"]))
def test_row_order_does_not_change_the_version(order: list[str]) -> None:
    frame = SPEC.frame([{"id": name, "value": ord(name)} for name in order])
    assert SPEC.digest(frame) == SPEC.digest(rows(a=97, b=98, c=99, d=100))


def test_another_schema_version_is_another_version() -> None:
    newer = TableSpec("things", ("id",), SPEC.columns, SPEC.volatile, schema_version=2)
    assert newer.digest(rows(a=1)) != SPEC.digest(rows(a=1))


def test_partitions_are_apart_and_read_together(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    publish(tables, rows(a=1), "one")
    publish(tables, rows(b=2), "two")
    assert tables.partitions("things") == ["one", "two"]
    assert tables.read(SPEC, "one")["id"].to_list() == ["a"]
    assert sorted(tables.read(SPEC)["id"].to_list()) == ["a", "b"]


def test_as_of_reads_what_was_current_then(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    publish(tables, rows(a=1))
    between = time.time()
    publish(tables, rows(a=2))
    assert tables.read(SPEC, as_of=between)["value"].to_list() == [1]
    assert len(tables.read(SPEC, as_of=between - 3600)) == 0


def test_going_back_to_old_rows_is_a_publication_of_the_old_version(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    old = publish(tables, rows(a=1))
    publish(tables, rows(a=2))
    assert publish(tables, rows(a=1)) == old
    history = (tables.folder("things") / "HEADS.jsonl").read_text().splitlines()
    assert [json.loads(line)["digest"] for line in history].count(old) == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([{"id": "a"}, {"id": "a"}], "occurs 2x"),
        ([{"id": None}], "null in key"),
        ([{"id": "a", "colour": 1}], r"unknown columns \['colour'\]"),
        ([{"id": "a", "value": "x"}], r"table things, column value: expected Int64.*String.*x"),
        ([{"id": "a", "value": 5.7}], r"table things, column value: expected Int64"),
    ],
)
def test_rows_that_break_the_table_are_named(bad: list[dict], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPEC.frame(bad)


def test_a_column_added_later_reads_as_null_in_old_versions(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    publish(tables, rows(a=1))
    wider = TableSpec("things", ("id",), {**SPEC.columns, "colour": pl.String}, SPEC.volatile)
    assert tables.read(wider)["colour"].to_list() == [None]


names = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"), max_size=6)


@given(names, names, st.sets(st.sampled_from("abcdef")))
def test_a_plan_sorts_every_key_into_exactly_one_class(previous, wanted, retry) -> None:
    result = plan_keys(previous, wanted, retry)
    listing = [*result.new, *result.stale, *result.gone, *result.unchanged]
    assert sorted(listing) == sorted(previous.keys() | wanted.keys())
    assert all(previous[key] == wanted[key] and key not in retry for key in result.unchanged)
    assert not plan_keys(wanted, wanted).due


@given(names, names)
def test_changes_are_counted_as_a_plan_over_all_that_makes_a_version(previous, wanted) -> None:
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


def test_the_history_lists_every_publication_in_order(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    versions = [publish(tables, rows(a=value)) for value in (1, 2, 3)]
    assert [head.digest for head in tables.history("things")] == versions
    assert tables.history("nothing") == []


@pytest.mark.parametrize("text", ["", "{half", "[1]"])
def test_a_broken_pointer_names_its_file_and_the_fix(tmp_path: Path, text: str) -> None:
    tables = Tables(tmp_path)
    tables.promote(tables.stage(SPEC, SPEC.frame([])), "run", [])
    (tmp_path / SPEC.name / "_" / "HEAD.json").write_text(text)
    with pytest.raises(PointerBroken, match=r"HEAD\.json.*materialize"):
        tables.head(SPEC.name)


def test_a_missing_pointer_beside_a_history_is_broken_and_no_empty_table(tmp_path: Path) -> None:
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


def test_half_a_line_of_a_history_costs_no_other(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.promote(tables.stage(SPEC, SPEC.frame([])), "run\u2028one", [])
    path = tmp_path / SPEC.name / "_" / "HEADS.jsonl"
    path.write_text(path.read_text() + '{"digest": "ab')
    assert [head.run_id for head in tables.history(SPEC.name)] == ["run\u2028one"]
