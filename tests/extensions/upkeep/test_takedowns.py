"""A server or a tool is taken down by its name, and let in again."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.quarantined_tools import CLEAR, read_clear, select_columns
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS, plan_jobs
from assets.servers.deploy.policy import DeployPolicy
from assets.synthesis.tables import PAIRS
from extensions.upkeep.checks import check_takedowns
from extensions.upkeep.health import InspectedHome
from extensions.upkeep.purge import list_taken
from extensions.upkeep.takedowns import (
    BadTakedown,
    lift_takedown,
    renew_takedowns,
    take_down,
)
from serving.index.build import move_pointer
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexMissing
from serving.ranking.overlays import read_blocked
from serving.ranking.query import ToolQuery
from serving.router import Router, ServedRouter
from tests.extensions.upkeep.conftest import make_deployment, publish_rows
from tests.servers.conftest import npm
from tests.serving.conftest import build
from tests.support.command import invoke_toolmill
from tests.support.untrusted_server import CONVERSATION, POLICY
from tests.vectors.conftest import WordEmbedder, snapshot
from training.releases.index_source import make_hold
from warehouse.storage.takedowns import read_tombstones
from warehouse.store import Warehouse

READ = snapshot("npm:files", "read_file", "Read one text file from disk")
WRITE = snapshot("npm:files", "write_file", "Write one text file")
TIME = snapshot("npm:clock", "get_time", "Tell the time in a city")
ROWS = [READ, WRITE, TIME]


def make_pair(row: dict[str, Any]) -> dict[str, Any]:
    same = {name: row[name] for name in ("server_id", "tool", "contract_digest")}
    return {"pair_id": row["tool"], "marketplace": "registry", **same}


def list_files() -> Listing:
    return npm("files")


@pytest.fixture
def full(warehouse: Warehouse, embedder: WordEmbedder) -> Warehouse:
    """Two servers with what a run makes of them, and an index that is served."""
    publish_rows(warehouse, LISTINGS, make_row(list_files()))
    tools = json.dumps([json.loads(row["contract"]) for row in ROWS[:2]]).encode()
    files = make_deployment(warehouse, "npm:files", "s", tools)
    clock = make_deployment(warehouse, "npm:clock", "s")
    publish_rows(warehouse, DEPLOYMENTS, {**files, "listing_id": list_files().listing_id}, clock)
    publish_rows(warehouse, SNAPSHOTS, *ROWS)
    publish_rows(
        warehouse, CLEAR, *select_columns(CLEAR, [dict.fromkeys(CLEAR.columns) | r for r in ROWS])
    )
    publish_rows(warehouse, PAIRS, *map(make_pair, ROWS))
    move_pointer(warehouse.home, build(warehouse.home, ROWS, embedder))
    return warehouse


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


def read_tools(warehouse: Warehouse) -> list[str]:
    return sorted(row["tool"] for row in read_clear(warehouse))


def find_broken(warehouse: Warehouse) -> list[str]:
    found = check_takedowns(InspectedHome(warehouse.home, warehouse.state)).findings
    assert {one.fix for one in found} <= {"toolmill takedown --renew"}
    return [one.thing for one in found]


def test_a_server_vanishes_from_tables_launches_and_a_running_router(
    full: Warehouse, embedder: WordEmbedder
) -> None:
    def opened(place: Path, version: str | None) -> Router:
        index = load_index(place, version or read_served_version(place))
        return Router(index, embedder, read_blocked(place))

    served, ask = ServedRouter(full.home, opened), ToolQuery("read one text file", k=5)
    assert {hit.server_id for hit in served.current().find(ask).hits} == {"npm:files", "npm:clock"}
    policy = DeployPolicy(full.home, POLICY, CONVERSATION)
    assert [job.key for job in plan_jobs([list_files()], {}, policy)] == ["npm:files"]
    made = take_down(full, "npm:files", "ann", "its owner asked")
    assert (made["kind"], made["blocked"]) == ("server", 2)
    assert made["reach"] == {"servers": 2, "listings": 1, "shown": 2}
    assert {hit.server_id for hit in served.settle(60).find(ask).hits} == {"npm:clock"}
    assert read_tools(full) == ["get_time"]
    assert full.tables.read(LISTINGS).height == 0
    assert plan_jobs([list_files()], {}, policy) == []
    assert find_broken(full) == []
    again = take_down(full, list_files().listing_id, "ann", "the same by its listing")
    assert again == made
    assert len(read_tombstones(full.home)) == 1


def test_the_same_again_writes_nothing_and_makes_up_for_a_kill(full: Warehouse) -> None:
    first = take_down(full, "npm:files", "ann", "its owner asked")
    blocked = full.home / "router" / "BLOCKED.json"
    blocked.unlink()  # killed between the record and the block list
    assert find_broken(full) == ["router/BLOCKED.json"]
    assert take_down(full, "npm:files", "bob", "once more") == first
    assert find_broken(full) == []
    assert len(read_tombstones(full.home)) == 1
    lift_takedown(full, "npm:files", "ann", "it was a mistake")
    assert read_tools(full) == ["get_time", "read_file", "write_file"]
    assert read_blocked(full.home).tools == frozenset()
    with pytest.raises(BadTakedown, match="is not taken down"):
        lift_takedown(full, "npm:files", "ann", "again")


def test_a_new_listing_of_what_was_taken_down_is_found_and_reached(full: Warehouse) -> None:
    take_down(full, "npm:files", "ann", "its owner asked")
    moved = list_files().model_copy(update={"native_id": "elsewhere"})
    publish_rows(full, LISTINGS, make_row(moved))
    assert find_broken(full) == ["tables/listings"]
    [renewed] = renew_takedowns(full)
    assert renewed["reach"]["listings"] == 2
    assert find_broken(full) == []


def test_one_tool_goes_and_its_neighbour_stays(full: Warehouse) -> None:
    take_down(full, "npm:files::write_file", "ann", "it deletes")
    assert read_tools(full) == ["get_time", "read_file"]
    assert read_blocked(full.home).tools == {"npm:files::write_file"}
    assert set(full.tables.read(PAIRS)["tool"]) == {"get_time", "read_file"}


def test_an_older_index_is_served_again_without_what_was_taken_down(
    full: Warehouse, embedder: WordEmbedder
) -> None:
    old = read_served_version(full.home)
    move_pointer(full.home, new := build(full.home, [TIME], embedder))
    take_down(full, "npm:files", "ann", "its owner asked")
    assert read_blocked(full.home).tools == frozenset()
    make_hold(full)(old)
    assert read_blocked(full.home).tools == {"npm:files::read_file", "npm:files::write_file"}
    for one in list_taken(full.home, full.state, time.time(), None):
        one.remove()
    with pytest.raises(IndexMissing):
        load_index(full.home, old)
    assert [tool.tool for tool in load_index(full.home, new).tools] == ["get_time"]


def test_the_commands_take_down_list_and_lift(full: Warehouse) -> None:
    args: dict[str, Any] = {"home": full.home, "TOOLMILL_STATE": str(full.state)}
    by = ("--by", "ann", "--why", "its owner asked")
    done = invoke_toolmill("takedown", "npm:files", *by, "--json", **args)
    assert json.loads(done.stdout)["takedowns"][0]["name"] == "npm:files"
    listed = json.loads(invoke_toolmill("takedown", "--json", **args).stdout)["takedowns"]
    assert [(one["name"], one["by"], one["why"]) for one in listed] == [("npm:files", *by[1::2])]
    assert invoke_toolmill("takedown", "--renew", **args).returncode == 0
    done = invoke_toolmill("takedown", "npm:files", "--lift", *by, **args)
    assert done.stdout.startswith("lifted  npm:files  (server; ")
    assert invoke_toolmill("takedown", **args).stdout == "0 taken down\n"
    for wrong in (["npm:files", "--renew"], [], ["npm:none"], ["npm:files", "--why", " "]):
        done = invoke_toolmill("takedown", *by, *wrong, **args)
        assert (done.returncode, done.stdout) == (2, ""), wrong
