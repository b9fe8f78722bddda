"""Write, audit, publish through real Dagster: a refused table leaves yesterday's data current."""

from typing import Any

import dagster as dg
import polars as pl

from tests.support.cases import cases
from tests.support.pages import list_tokens
from warehouse.audit import AuditVerdict, expect_unique
from warehouse.publish import (
    NOT_DUE,
    Published,
    _build_column_schema,
    audit_table,
    describe_asset,
    publish,
    refuse,
)
from warehouse.sanitize.markdown import Markdown
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

SPEC = TableSpec(
    "things",
    ("id",),
    {"id": pl.String, "colour": pl.String, "shade": pl.String},
    volatile=("shade",),
    expectations=(expect_unique("id"),),
)
AUDIT = audit_table(
    SPEC,
    {"colour": ["red", "blue"], "shade?": ["light", "dark"]},
    rules={"crawl": "The marketplace answered.", "rows_floor": "Enough rows came."},
)
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


def run(
    warehouse: Warehouse,
    rows: list[dict] | Exception,
    partition: str = "a",
    rules=(),
    instance: dg.DagsterInstance | None = None,
):
    @dg.asset(**describe_asset(AUDIT, "warehouse/storage", partitions=PARTS))
    def things(context: dg.AssetExecutionContext) -> Published:
        if isinstance(rows, Exception):
            yield from refuse(context, warehouse, AUDIT, "crawl", rows)
            return
        how = {"rules": rules, "metadata": {"shown": Markdown("**a**"), "said": "**b**"}}
        yield from publish(context, warehouse, AUDIT, SPEC.frame(rows), **how)

    @dg.asset(deps=[things], partitions_def=PARTS)
    def downstream() -> None:
        reached.append(partition)

    reached: list[str] = []
    how = {"partition_key": partition, "raise_on_error": False, "instance": instance}
    return dg.materialize([things, downstream], **how), reached


def current(warehouse: Warehouse, partition: str = "a") -> list[str]:
    return warehouse.tables.read(SPEC, partition)["id"].to_list()


def get_event(result: dg.ExecuteInProcessResult) -> Any:
    events = result.get_asset_materialization_events()
    return next(event for event in events if event.asset_key == dg.AssetKey("things"))


def read_counts(result: dg.ExecuteInProcessResult) -> tuple[Any, Any]:
    """(rows of the partition, rows of the table), as the UI reads them."""
    visible = get_event(result).materialization.metadata
    names = ("dagster/partition_row_count", "dagster/row_count")
    part, table = (visible[name].value if name in visible else None for name in names)
    return part, table


def describe_checks(result: dg.ExecuteInProcessResult) -> dict[str, str | None]:
    return {item.check_name: item.description for item in result.get_asset_check_evaluations()}


def failed_checks(result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    return [check for check in result.get_asset_check_evaluations() if not check.passed]


def test_a_good_table_becomes_current_with_its_figures_also_after_a_broken_last_version(warehouse):
    result, reached = run(warehouse, [{"id": "1", "colour": "red"}])
    assert result.success
    assert reached == ["a"]
    assert current(warehouse) == ["1"]
    event = get_event(result)
    head = warehouse.tables.head("things", "a")
    assert head
    assert event.materialization.tags["dagster/data_version"] == head.digest
    assert event.materialization.metadata["new"].value == 1
    assert read_counts(result) == (1, 1)
    assert event.materialization.metadata["shown"] == dg.MetadataValue.md("**a**")
    assert event.materialization.metadata["said"] == dg.MetadataValue.text("**b**")
    assert head.run_id == result.run_id
    run(warehouse, [{"id": "1", "colour": "red"}])
    for version in warehouse.tables.folder("things", "a").glob("*.parquet"):
        version.write_bytes(b"no parquet")
    result, reached = run(warehouse, [{"id": "2", "colour": "red"}])
    assert (result.success, reached) == (True, ["a"])
    assert current(warehouse) == ["2"]


def test_the_row_count_of_a_partitioned_table_is_that_of_all_partitions(warehouse):
    rows = [{"id": "1", "colour": "red"}, {"id": "2", "colour": "blue"}]
    assert read_counts(run(warehouse, rows)[0]) == (2, 2)
    assert read_counts(run(warehouse, [], "b")[0]) == (0, 2)
    assert read_counts(run(warehouse, rows[:1])[0]) == (1, 1)
    (warehouse.tables.folder("things", "b") / "HEAD.json").write_text("{")
    assert read_counts(run(warehouse, rows)[0]) == (2, None)


def test_a_partition_without_rows_hides_no_figure_of_the_others_nor_a_row_of_their_page(warehouse):
    def read(rows: list[dict[str, str]], partition: str) -> dict[str, Any]:
        return get_event(run(warehouse, rows, partition)[0]).materialization.metadata

    own, red = {"new", "shown", "said"}, [{"id": "1", "colour": "red"}]
    first, shown, again = read([], "b"), read(red, "a"), read([], "b")
    assert own <= first.keys()  # no other has any
    assert "all_partitions" not in first
    assert own <= shown.keys()
    assert "| a | 1 |" in shown["all_partitions"].value
    assert not own & again.keys()
    assert again["all_partitions"] == shown["all_partitions"]
    assert own <= read(red, "b").keys()
    assert own <= read([], "b").keys()  # what is gone is told


def test_the_pass_of_a_partition_hides_no_failure_of_another(warehouse):
    with dg.DagsterInstance.ephemeral() as instance:
        run(warehouse, ValueError("the host is gone"), "a", instance=instance)
        run(warehouse, [{"id": "1", "colour": "red"}], "b", instance=instance)
        key = dg.AssetCheckKey(dg.AssetKey("things"), "crawl")
        state = instance.event_log_storage.get_asset_check_state([(key, PARTS)])[key]
        by_status = {
            status.name: sorted(subset.subset_value.get_partition_keys())
            for status, subset in state.subsets.items()
            if not subset.is_empty
        }
    assert by_status == {"FAILED": ["a"], "SUCCEEDED": ["b"]}


def test_a_bad_table_moves_nothing_and_stops_what_follows_in_its_partition_alone(warehouse):
    run(warehouse, [{"id": "1", "colour": "red"}])
    before = warehouse.tables.head("things", "a")
    for partition in ("a", "b"):
        result, reached = run(warehouse, [{"id": "2", "colour": "mauve"}], partition)
        assert (result.success, reached) == (False, [])
        assert warehouse.tables.head("things", "a") == before
        [check] = failed_checks(result)
        assert check.check_name == "colour_in_set"
        assert "mauve" in (check.description or "")
    assert (current(warehouse, "a"), current(warehouse, "b")) == (["1"], [])


@cases(
    "row, rules",
    ({"id": "1", "colour": "red", "shade": "none of these"}, ()),
    ({"id": "1", "colour": "red", "shade": "dark"}, [AuditVerdict("rows_floor", False, "1 rows")]),
)
def test_a_refused_table_leaves_the_published_one_as_it_was_to_the_byte(warehouse, row, rules):
    run(warehouse, [{"id": "1", "colour": "red", "shade": "light"}])
    folder = warehouse.tables.folder("things", "a")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result, _ = run(warehouse, [row], rules=rules)
    assert not result.success
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert warehouse.tables.read(SPEC, "a")["shade"].to_list() == ["light"]


def test_each_rule_is_a_blocking_check_and_a_verdict_without_one_an_error(warehouse):
    lost = AuditVerdict("rows_flor", True, "1 rows")
    result, reached = run(warehouse, [{"id": "1", "colour": "red"}], rules=[lost])
    assert (result.success, reached, current(warehouse)) == (False, [], [])
    floor = AuditVerdict("rows_floor", True, "1 rows")
    result, _ = run(warehouse, [{"id": "1", "colour": "red"}], rules=[floor])
    assert describe_checks(result) == {
        "id_unique": "0 unexpected of 1", "colour_in_set": "0 unexpected of 1",
        "shade_in_set": "0 unexpected of 1", "crawl": NOT_DUE, "rows_floor": "1 rows",
    }  # fmt: skip
    assert all(spec.blocking for spec in AUDIT.build_specs())


def test_rows_that_passed_before_are_not_validated_again(warehouse, monkeypatch):
    rows = [{"id": "1", "colour": "red"}]
    run(warehouse, rows)
    validated: list[int] = []

    def validate(_frame, expectations):
        validated.append(len(expectations))
        return [AuditVerdict(item.rule, True, "0 unexpected", item.text) for item in expectations]

    monkeypatch.setattr("warehouse.audit._run_great_expectations", validate)
    result, _ = run(warehouse, rows)
    assert result.success
    assert len(result.get_asset_check_evaluations()) == 5
    assert validated == [1], "a volatile column makes no version, so it is validated each time"
    run(warehouse, [*rows, {"id": "2", "colour": "blue"}])
    assert validated == [1, 3]
    run(warehouse, [{"id": "1", "colour": "blue"}, {"id": "2", "colour": "red"}])
    assert validated == [1, 3, 1], "each column has the values that passed"


def test_an_asset_carries_its_schema_its_owner_and_version_and_the_ui_says_what_a_column_holds():
    facts = describe_asset(AUDIT, "warehouse/storage")
    schema = facts["metadata"]["dagster/column_schema"]
    kinds = {column.name: column.type for column in schema.columns}
    assert kinds == dict.fromkeys(("id", "colour", "shade"), "String")
    assert not schema.columns[0].constraints.nullable
    assert facts["code_version"] == describe_asset(AUDIT, "warehouse/storage")["code_version"]
    assert facts["code_version"] != describe_asset(AUDIT, "warehouse/ledger")["code_version"]
    assert facts["tags"] == {"toolmill/package": "warehouse.storage"}
    table_spec = TableSpec(
        "told",
        key=("id",),
        columns={"id": (pl.String, "<of> it"), "seen": (pl.Float64, "when"), "size": pl.Int64},
        volatile=("seen",),
    )
    [identity, seen, size] = _build_column_schema(table_spec).columns
    assert (identity.type, identity.description) == ("String", r"\<of> it")  # no tag
    assert seen.description == "when; volatile: takes no part in the version"
    assert size.description is None
    assert table_spec.columns == {"id": pl.String, "seen": pl.Float64, "size": pl.Int64}


@cases("warns", True, False)
def test_a_failed_rule_says_what_was_expected_and_refuses_unless_it_warns(warehouse, warns):
    floor = AuditVerdict("rows_floor", False, "1 rows", "at least 7", warns=warns)
    result, reached = run(warehouse, [{"id": "1", "colour": "red"}], rules=[floor])
    [check] = failed_checks(result)
    assert check.check_name == "rows_floor"
    assert check.description == "rows_floor: found 1 rows, expected at least 7"
    assert (check.severity == dg.AssetCheckSeverity.WARN) is warns
    assert (reached, current(warehouse)) == ((["a"], ["1"]) if warns else ([], []))


def test_what_a_check_says_is_text_in_the_ui(warehouse):
    """The UI reads a description as Markdown: an image in it was loaded."""
    text = "![x](http://127.0.0.1:9/beacon) <b>x</b> [y](http://127.0.0.1:9) http://127.0.0.1:9"
    rules = [AuditVerdict("crawl", True, text), AuditVerdict("rows_floor", False, text, "rows")]
    result, _ = run(warehouse, [{"id": "1", "colour": "red"}], rules=rules)
    descriptions = describe_checks(result)
    for name in ("crawl", "rows_floor"):
        tokens = {token.type for token in list_tokens(descriptions[name] or "")}
        assert not {"image", "link_open", "html_inline"} & tokens
        assert (descriptions[name] or "").startswith("`")


def test_rows_that_could_not_be_made_are_a_failed_check_with_the_reason(warehouse):
    run(warehouse, [{"id": "1", "colour": "red"}])
    result, reached = run(warehouse, ValueError("HTML where JSON was expected"))
    assert (result.success, reached) == (False, [])
    [check] = failed_checks(result)
    assert check.check_name == "crawl"
    assert "HTML where JSON" in (check.description or "")
    assert current(warehouse) == ["1"]


def test_the_lineage_of_identities_leads_to_the_assets_above(warehouse):
    columns = {"server_id": pl.String, "status": pl.String, "text_digest": pl.String}
    above = audit_table(TableSpec("above", ("server_id",), columns))
    below = audit_table(TableSpec("below", ("server_id",), {**columns, "pair_id": pl.String}))

    def build(audit: Any, *deps: Any) -> Any:
        @dg.asset(**describe_asset(audit, "warehouse/storage"), deps=deps)
        def asset(context: dg.AssetExecutionContext) -> Published:
            yield from publish(context, warehouse, audit, audit.table.frame([]))

        return asset

    first = build(above)
    events = dg.materialize([first, build(below, first)]).get_asset_materialization_events()
    lineage_of = {
        event.asset_key.to_user_string(): event.materialization.metadata["dagster/column_lineage"]
        for event in events
    }
    assert lineage_of["above"].value.deps_by_column == {}
    assert lineage_of["below"].value.deps_by_column == {
        name: [dg.TableColumnDep(asset_key=dg.AssetKey("above"), column_name=name)]
        for name in ("server_id", "text_digest")
    }
