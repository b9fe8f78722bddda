"""A run of one server: what it makes anew, and that nothing of another server moves."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.contracts.defs import findings, snapshots
from assets.marketplaces.policy import CrawlPolicy
from assets.one_server import keep_other_servers
from assets.partitions import ONE_SERVER_JOB, SERVER_TAG
from assets.servers.defs import deployments
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy, MarketplaceLauncher
from orchestration.runs.nightly import UnknownServer, find_marketplaces
from tests.e2e.test_private import SANDBOX, read_rows, run_nightly, trust_all
from tests.serving.calling import PATIENT
from tests.support.command import invoke_toolmill
from tests.support.local_servers import write_file, write_server
from tests.support.untrusted_server import require_sandbox
from warehouse.store import Warehouse


def test_others_rows_stay_and_none_are_lost() -> None:
    before = [{"server_id": item, "n": 1} for item in "abc"]
    made = [{"server_id": item, "n": 2} for item in "abd"]
    assert keep_other_servers(before, made, None) == made
    kept = keep_other_servers(before, made, "b")
    assert {row["server_id"]: row["n"] for row in kept} == {"a": 1, "b": 2, "c": 1}
    assert {row["server_id"] for row in keep_other_servers(before, [], "b")} == {"a", "c"}


def make_deployments_current(warehouse: Warehouse, market: str, *ids: str) -> None:
    rows = [
        {
            "marketplace": market,
            "server_id": item,
            "listing_id": item,
            "launch_digest": "0",
            "status": "failed",
        }
        for item in ids
    ]
    staged = warehouse.tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), market)
    warehouse.tables.promote(staged, "r", [])


def test_a_server_is_found_where_it_is_listed_and_an_unknown_one_by_near_names(
    warehouse: Warehouse,
) -> None:
    make_deployments_current(warehouse, "glama", "npm:@acme/files", "npm:weather")
    make_deployments_current(warehouse, "registry", "npm:@acme/files", "pypi:mail")
    assert find_marketplaces(warehouse, "npm:@acme/files") == ["glama", "registry"]
    assert find_marketplaces(warehouse, "npm:@acme/files", ["registry"]) == ["registry"]
    for asked in ("npm:@acme/filse", "acme", "ACME"):
        with pytest.raises(UnknownServer, match=r"near it: npm:@acme/files") as error:
            find_marketplaces(warehouse, asked)
        assert "\n" not in str(error.value)
    with pytest.raises(UnknownServer, match="among the 3; the ids are"):
        find_marketplaces(warehouse, "zzzzzzzzzzzzzzz\x1b[2J")
    with pytest.raises(UnknownServer, match="of glama"):
        find_marketplaces(warehouse, "pypi:mail", ["glama"])


def test_an_unknown_server_ends_the_command_before_anything_starts(warehouse: Warehouse) -> None:
    warehouse.check_writable()
    make_deployments_current(warehouse, "glama", "npm:@acme/files")
    done = invoke_toolmill(
        "run", "--server", "npm:acme/file", home=warehouse.home, DAGSTER_HOME="x"
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("near it: npm:@acme/files")


def test_the_job_refuses_to_run_without_a_server(warehouse: Warehouse) -> None:
    make_deployments_current(warehouse, "private", "npm:a")
    given = {"warehouse": warehouse, "launcher": MarketplaceLauncher(DeployPolicy(warehouse.home))}
    held: dict[str, Any] = {
        name: dg.ResourceDefinition.hardcoded_resource(value) for name, value in given.items()
    }
    defs = dg.Definitions(
        assets=[deployments],
        jobs=[dg.define_asset_job(ONE_SERVER_JOB, selection=["deployments"])],
        resources=held,
    )
    job = defs.resolve_job_def(ONE_SERVER_JOB)
    result = job.execute_in_process(partition_key="private", raise_on_error=False)
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert SERVER_TAG in str(failure.step_failure_data)
    assert warehouse.ledger.counts() == {}


@pytest.mark.slow  # tests/e2e/test_runs.py takes another one through all stages
def test_one_server_is_launched_again_and_no_other_row_moves(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    require_sandbox()
    folders = {name: write_server(tmp_path / name) for name in ("one", "two")}
    files: CrawlPolicy = write_file(
        tmp_path / "mcp.json",
        **{
            name: {"command": "python", "args": ["server.py"], "cwd": str(folder)}
            for name, folder in folders.items()
        },
    )
    policy = DeployPolicy(warehouse.home, SANDBOX, PATIENT, twice=False)
    run_nightly(warehouse, files, policy)
    policy = trust_all(files, policy)
    run_nightly(warehouse, files, policy)
    before = read_rows(warehouse)
    launches = warehouse.ledger.counts()["deploy", "done"]
    server = before["one"]["server_id"]
    for name in folders:  # both are other servers now: only one is to be looked at
        source = folders[name] / "server.py"
        source.write_text(source.read_text() + "\n# changed\n")
    policy = trust_all(files, policy)
    given = {"warehouse": warehouse, "launcher": MarketplaceLauncher(policy)}
    held: dict[str, Any] = {
        name: dg.ResourceDefinition.hardcoded_resource(value) for name, value in given.items()
    }
    assert dg.materialize(
        [deployments, snapshots, findings],
        resources=held,
        partition_key="private",
        tags={SERVER_TAG: server},
    ).success
    after = read_rows(warehouse)
    assert warehouse.ledger.counts()["deploy", "done"] == launches + 1
    assert after["two"] == before["two"]
    assert after["one"]["probed_at"] > before["one"]["probed_at"]
