"""Servers of one's own through the nightly job's assets, into an index, and called from there."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from assets.contracts.defs import clear_contracts, findings, snapshots
from assets.marketplaces.defs import listings
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlPolicy
from assets.servers.adhoc import list_local_servers
from assets.servers.calls.caller import ToolCaller
from assets.servers.defs import deployments
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy, MarketplaceLauncher
from assets.servers.sandbox.toolchain import find_toolchain
from tests.serving.calling import CONTRACT, LIMITS, PATIENT, read_text
from tests.support.local_servers import NODE, write_file, write_server
from tests.support.untrusted_server import POLICY, require_sandbox
from training.releases.index_source import build_published_source, map_server_recipes
from warehouse.store import Warehouse

NIGHTLY = [listings, deployments, snapshots, findings, clear_contracts]
SANDBOX = replace(POLICY, memory_mb=1024)


def run_nightly(warehouse: Warehouse, files: CrawlPolicy, policy: DeployPolicy) -> None:
    given: dict[str, Any] = {"warehouse": warehouse, "launcher": MarketplaceLauncher(policy)}
    given["crawlers"] = {"private": files}
    harden = dg.ResourceDefinition.hardcoded_resource
    held: dict[str, Any] = {name: harden(value) for name, value in given.items()}
    assert dg.materialize(NIGHTLY, resources=held, partition_key="private").success


def read_rows(warehouse: Warehouse) -> dict[str, dict[str, Any]]:
    rows = warehouse.tables.read(DEPLOYMENTS, "private").to_dicts()
    return {row["server_id"].partition("#")[2]: row for row in rows}


def test_without_a_file_the_partition_is_made_and_empty(warehouse):
    policy = DeployPolicy(warehouse.home, SANDBOX, PATIENT, twice=False)
    run_nightly(warehouse, CrawlPolicy(base_url=""), policy)
    heads = {asset.key.path[-1]: warehouse.tables.head(asset.key.path[-1], "private")
             for asset in NIGHTLY}  # fmt: skip
    assert all(heads.values()), heads
    for table in (LISTINGS, DEPLOYMENTS):
        assert warehouse.tables.read(table, "private").is_empty()


def test_own_servers_are_listed_trusted_launched_indexed_and_called(warehouse, tmp_path):
    require_sandbox()
    if not find_toolchain().node:
        pytest.skip("no Node.js on this host")
    python = write_server(tmp_path / "python")
    node = write_server(tmp_path / "node", NODE, "dist/index.js")
    files = write_file(
        tmp_path / "mcp.json",
        py={"command": "python", "args": ["server.py"], "cwd": str(python)},
        js={"command": "node", "args": [str(node / "dist" / "index.js")]},
    )
    policy = DeployPolicy(warehouse.home, SANDBOX, PATIENT, twice=False)
    # Nothing of it is launched before it is trusted, and the run is whole all the same.
    run_nightly(warehouse, files, policy)
    assert {row["error_kind"] for row in read_rows(warehouse).values()} == {"needs_confirmation"}
    local = list_local_servers(files, policy)
    policy = replace(policy, confirmed={one.server_id: (str(one.digest),) for one in local})
    run_nightly(warehouse, files, policy)
    rows = read_rows(warehouse)
    assert {name: row["n_tools"] for name, row in rows.items()} == {"py": 2, "js": 1}, rows

    source, _ = build_published_source(warehouse)
    recipes = map_server_recipes(rows.values())
    assert {row["server_id"] for row in source.rows} == {row["server_id"] for row in rows.values()}
    assert dict(source.recipes) == recipes

    async def call_both() -> dict[str, str]:
        caller = ToolCaller(recipes, policy, LIMITS)
        try:
            found = {
                name: await caller.call(row["server_id"], "do", CONTRACT, {"x": 21})
                for name, row in rows.items()
            }
        finally:
            await caller.close()
        return {name: read_text(one) for name, one in found.items()}

    assert asyncio.run(call_both()) == {"py": str([21, str(python)]), "js": "42"}

    # A script that its owner edited is launched again in the same run; the other is left alone.
    launches = warehouse.ledger.counts()["deploy", "done"]
    write_server(tmp_path / "python", "calls(lambda m, x: say(m, x), [tool('new')])")
    run_nightly(warehouse, files, policy)
    again = read_rows(warehouse)
    assert warehouse.ledger.counts()["deploy", "done"] == launches + 1
    [tool] = warehouse.blobs.get_json(again["py"]["tools_blob"])
    assert (tool["name"], again["js"]["probed_at"]) == ("new", rows["js"]["probed_at"])

    # A command that changed is not launched with the trust that another had.
    facts = json.loads(files.paths[0].read_text())
    facts["mcpServers"]["py"]["args"] += ["--admin"]
    files.paths[0].write_text(json.dumps(facts))
    run_nightly(warehouse, files, policy)
    last = read_rows(warehouse)
    assert (last["py"]["error_kind"], last["js"]["status"]) == ("needs_confirmation", "ok")
    assert set(build_published_source(warehouse)[0].recipes) == {last["js"]["server_id"]}
