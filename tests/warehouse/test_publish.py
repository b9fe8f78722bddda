"""Write, audit, publish through real Dagster: a refused table leaves yesterday's data current."""

from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from warehouse.audit import Verdict, audit, expect_one_of, expect_present, expect_unique
from warehouse.publish import Published, audited, publish, refuse
from warehouse.storage.tables import TableSpec, plan
from warehouse.store import HomeUnavailable, Warehouse

SPEC = TableSpec("things", ("id",), {"id": pl.String, "colour": pl.String})
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


def run(warehouse: Warehouse, rows: list[dict] | Exception, partition: str = "a", rules=()):
    @dg.asset(partitions_def=PARTS, check_specs=audited("things"))
    def things(context: dg.AssetExecutionContext) -> Published:
        if isinstance(rows, Exception):
            yield from refuse(context, warehouse, "things", "crawl", rows)
            return
        made = plan({}, {row["id"]: row["colour"] for row in rows})
        yield from publish(
            context,
            warehouse,
            SPEC,
            SPEC.frame(rows),
            expectations=[expect_unique("id"), expect_one_of("colour", ["red", "blue"])],
            rules=rules,
            plan=made,
        )

    @dg.asset(deps=[things], partitions_def=PARTS)
    def downstream() -> None:
        reached.append(partition)

    reached: list[str] = []
    result = dg.materialize([things, downstream], partition_key=partition, raise_on_error=False)
    return result, reached


def current(warehouse: Warehouse, partition: str = "a") -> list[str]:
    return warehouse.tables.read(SPEC, partition)["id"].to_list()


def test_a_good_table_becomes_current_with_its_version_and_figures(warehouse: Warehouse) -> None:
    result, reached = run(warehouse, [{"id": "1", "colour": "red"}])
    assert result.success
    assert reached == ["a"]
    assert current(warehouse) == ["1"]
    [event] = [
        e for e in result.get_asset_materialization_events() if e.asset_key.path == ["things"]
    ]
    head = warehouse.tables.head("things", "a")
    assert head
    assert event.materialization.tags is not None
    assert event.materialization.tags["dagster/data_version"] == head.digest
    assert event.materialization.metadata["new"].value == 1
    assert head.run_id == result.run_id


def test_a_bad_table_moves_nothing_and_stops_what_follows(warehouse: Warehouse) -> None:
    run(warehouse, [{"id": "1", "colour": "red"}])
    before = warehouse.tables.head("things", "a")
    result, reached = run(warehouse, [{"id": "2", "colour": "mauve"}])
    assert not result.success
    assert reached == []
    assert warehouse.tables.head("things", "a") == before
    [check] = result.get_asset_check_evaluations()
    assert not check.passed
    assert "mauve" in (check.description or "")


def test_one_partitions_bad_night_does_not_touch_the_other(warehouse: Warehouse) -> None:
    run(warehouse, [{"id": "1", "colour": "red"}], "a")
    run(warehouse, [{"id": "2", "colour": "mauve"}], "b")
    assert current(warehouse, "a") == ["1"]
    assert current(warehouse, "b") == []


def test_a_failed_rule_refuses_and_says_what_was_expected(warehouse: Warehouse) -> None:
    floor = Verdict("rows_floor", False, "1 rows", "at least 7")
    result, _ = run(warehouse, [{"id": "1", "colour": "red"}], rules=[floor])
    [check] = result.get_asset_check_evaluations()
    assert check.description == "rows_floor: found 1 rows, expected at least 7"


def test_rows_that_could_not_be_made_are_a_failed_check_with_the_reason(warehouse) -> None:
    run(warehouse, [{"id": "1", "colour": "red"}])
    result, reached = run(warehouse, ValueError("HTML where JSON was expected"))
    assert (result.success, reached) == (False, [])
    [check] = result.get_asset_check_evaluations()
    assert "HTML where JSON" in (check.description or "")
    assert current(warehouse) == ["1"]


def test_an_audit_lists_every_failure_with_examples() -> None:
    frame = pl.DataFrame({"id": ["1", "1", None]})
    verdicts = audit(frame, [expect_unique("id"), expect_present("id")])
    assert [v.passed for v in verdicts.verdicts] == [False, False]
    assert "2 unexpected of 3, e.g. 1, 1" in verdicts.why()


def test_a_home_that_cannot_be_written_is_named_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = Warehouse(home=tmp_path / "file" / "home", state=tmp_path / "state")
    with pytest.raises(HomeUnavailable, match=r"Not a directory.*TOOLMILL_HOME"):
        blocked.check_writable()
