"""A run of Dagster's, wherever its launcher starts it: it holds the home, and what its stages made
is committed before anybody is told of it."""

from pathlib import Path

import dagster as dg
import pytest

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable
from extensions.scale.bucket_home.root import read_root
from extensions.scale.bucket_home.session import BucketHome
from orchestration.resources import build_default_resources
from orchestration.runs.console import find_innermost
from tests.extensions.scale.bucket_home.machines import TABLE, open_machine, read_value
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.store import Warehouse

obstore = pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")
AUDIT = audit_table(TABLE)


@dg.asset(**describe_asset(AUDIT, "extensions/scale/bucket_home"))
def facts(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    yield from publish(context, warehouse, AUDIT, TABLE.frame([{"id": "a", "value": 7}]))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    from obstore.store import MemoryStore

    made = Bucket(MemoryStore(), "s3://here/homes/main")
    monkeypatch.setattr("extensions.scale.bucket.bucket.open_bucket", lambda _: made)
    for name, value in {
        "TOOLMILL_STORAGE__BUCKET": made.url,
        "TOOLMILL_HOME": str(tmp_path / "1"),
        "DAGSTER_POSTGRES_URL": "postgresql://only/its/name/counts/here",
    }.items():
        monkeypatch.setenv(name, value)
    return made


def run_asset() -> tuple[dg.ExecuteInProcessResult, dg.DagsterInstance]:
    resources = {"warehouse": build_default_resources()["warehouse"]}
    instance = dg.DagsterInstance.ephemeral()
    made = dg.materialize([facts], resources=resources, instance=instance, raise_on_error=False)
    return made, instance


def test_a_run_holds_the_home_and_lets_go(bucket: Bucket, tmp_path: Path) -> None:
    result, _ = run_asset()
    assert result.success
    root = read_root(bucket)
    assert (root.number > 0, root.lease) == (True, None)
    two = open_machine(bucket, tmp_path / "2")
    two.refresh()
    assert read_value(two) == 7


def test_nobody_is_told_of_what_could_not_be_committed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: BucketHome, **__: object) -> int:
        raise BucketUnavailable("it answers 503")

    monkeypatch.setattr(BucketHome, "commit", fail)
    result, _ = run_asset()
    assert not result.success
    assert not result.get_asset_materialization_events()


def test_a_run_beside_another_machines_fails_with_the_line_that_names_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    with open_machine(bucket, tmp_path / "2").hold():
        result, instance = run_asset()
    assert not result.success
    [failed] = [
        event.dagster_event
        for event in instance.all_logs(result.run_id)
        if event.dagster_event and event.dagster_event.event_type_value == "PIPELINE_FAILURE"
    ]
    assert "held by " in find_innermost(failed)
