"""A server or a tool is taken down by its name, let in again, and its bytes are collected."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from assets.contracts.canonical import tool_text
from assets.contracts.quarantined_tools import CLEAR, read_clear, select_columns
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.listing import make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.calls.log import CallLog
from assets.servers.deploy.deployment_table import DEPLOYMENTS, plan_jobs
from assets.servers.deploy.policy import DeployPolicy
from assets.synthesis.tables import PAIRS
from assets.vectors.index import INSTRUCTIONS, build_server_text, embed_texts
from extensions.upkeep.checks import check_takedowns
from extensions.upkeep.collect import find_garbage, remove_garbage
from extensions.upkeep.health import NOTICE, InspectedHome
from extensions.upkeep.policy import GarbageLimits
from extensions.upkeep.purge import KIND, list_taken
from extensions.upkeep.takedowns import BadTakedown, lift_takedown, renew_takedowns, take_down
from serving.index.build import move_pointer
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexMissing
from serving.ranking.overlays import read_blocked
from serving.ranking.query import ToolQuery
from serving.router import Router, ServedRouter
from tests.extensions.upkeep.conftest import list_broken, make_deployment, publish_rows
from tests.extensions.upkeep.test_collect import make_place
from tests.servers.conftest import npm
from tests.serving.conftest import build
from tests.support.cases import cases
from tests.support.command import invoke_toolmill
from tests.support.untrusted_server import CONVERSATION, POLICY
from tests.vectors.conftest import WordEmbedder, snapshot
from training.releases.index_source import make_hold
from training.runtime.model_store import CARD, write_job
from training.sets.pool import load_pool, save_pool
from warehouse.ledger.attempts import LOCAL_ANSWER, EffectOutcome
from warehouse.storage.files import write_atomically
from warehouse.storage.lance import LanceStore
from warehouse.storage.takedowns import read_tombstones
from warehouse.store import Warehouse

READ = snapshot("npm:files", "read_file", "Read one text file from disk")
WRITE = snapshot("npm:files", "write_file", "Write one text file")
TIME = snapshot("npm:clock", "get_time", "Tell the time in a city")
ROWS = [READ, WRITE, TIME]
FILES = npm("files")


@pytest.fixture
def full(warehouse: Warehouse, embedder: WordEmbedder) -> Warehouse:
    """Two servers with what a run makes of them, and an index that is served."""
    publish_rows(warehouse, LISTINGS, make_row(FILES))
    tools = json.dumps([json.loads(row["contract"]) for row in ROWS[:2]]).encode()
    files = make_deployment(warehouse, "npm:files", "s", tools)
    clock = make_deployment(warehouse, "npm:clock", "s")
    publish_rows(warehouse, DEPLOYMENTS, {**files, "listing_id": FILES.listing_id}, clock)
    publish_rows(warehouse, SNAPSHOTS, *ROWS)
    clear = [dict.fromkeys(CLEAR.columns) | row for row in ROWS]
    publish_rows(warehouse, CLEAR, *select_columns(CLEAR, clear))
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


def test_a_server_vanishes_from_tables_launches_and_a_running_router(full, embedder):
    def opened(place: Path, version: str | None) -> Router:
        index = load_index(place, version or read_served_version(place))
        return Router(index, embedder, read_blocked(place))

    served, ask = ServedRouter(full.home, opened), ToolQuery("read one text file", k=5)
    assert {hit.server_id for hit in served.current().find(ask).hits} == {"npm:files", "npm:clock"}
    policy = DeployPolicy(full.home, POLICY, CONVERSATION)
    assert [job.key for job in plan_jobs([FILES], {}, policy)] == ["npm:files"]
    made = take_down(full, "npm:files", "ann", "its owner asked")
    assert (made["kind"], made["blocked"]) == ("server", 2)
    assert made["reach"] == {"servers": 2, "listings": 1, "shown": 2}
    assert {hit.server_id for hit in served.settle(60).find(ask).hits} == {"npm:clock"}
    assert read_tools(full) == ["get_time"]
    assert full.tables.read(LISTINGS).height == 0
    assert plan_jobs([FILES], {}, policy) == []
    assert find_broken(full) == []
    assert take_down(full, FILES.listing_id, "ann", "the same by its listing") == made
    assert len(read_tombstones(full.home)) == 1


def test_the_same_again_makes_up_for_a_kill_and_what_is_lifted_can_go_by_its_tools(full):
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
    take_down(full, "npm:files::write_file", "ann", "it deletes")
    assert read_tools(full) == ["get_time", "read_file"]
    assert read_blocked(full.home).tools == {"npm:files::write_file"}
    assert set(full.tables.read(PAIRS)["tool"]) == {"get_time", "read_file"}


def test_a_new_listing_of_what_was_taken_down_is_found_and_reached(full):
    take_down(full, "npm:files", "ann", "its owner asked")
    publish_rows(full, LISTINGS, make_row(FILES.model_copy(update={"native_id": "elsewhere"})))
    assert find_broken(full) == ["tables/listings"]
    [renewed] = renew_takedowns(full)
    assert renewed["reach"]["listings"] == 2
    assert find_broken(full) == []


def test_an_older_index_is_served_again_without_what_was_taken_down(full, embedder):
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


def test_the_commands_take_down_list_and_lift(full):
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


OTHER = snapshot("npm:other", "connect", "Connect to a service")
LISTED = [READ, OTHER, TIME]


def make_pair(row: dict[str, Any], night: int = 0) -> dict[str, Any]:
    same = {name: row[name] for name in ("server_id", "tool", "contract_digest")}
    asked = f"Please {row['tool']} for night {night}"
    return {"pair_id": f"{row['tool']}{night}", "license": "MIT", "instruction": asked, **same}


@pytest.fixture
def lived(warehouse: Warehouse) -> Warehouse:
    """Two nights of three servers: tables, blobs, paid answers, vectors, and a pool."""
    for night in range(2):
        tools = [json.dumps([json.loads(row["contract"]), night]).encode() for row in LISTED]
        deployed = [
            make_deployment(warehouse, row["server_id"], "s", of) | {"n_tools": night}
            for row, of in zip(LISTED, tools, strict=True)
        ]
        publish_rows(warehouse, DEPLOYMENTS, *deployed)
        publish_rows(warehouse, SNAPSHOTS, *({**row, "first_seen": f"{night}"} for row in LISTED))
        publish_rows(warehouse, PAIRS, *(make_pair(row, night) for row in LISTED))
        store, embedder = LanceStore(warehouse.home / "lance"), WordEmbedder()
        bodies = {row["server_id"]: json.loads(row["contract"]) for row in LISTED}
        texts = [tool_text(body) for body in bodies.values()]
        texts += [build_server_text(name, [body]) for name, body in bodies.items()]
        embed_texts(texts, embedder, store)
        asked = [make_pair(row, night)["instruction"] for row in LISTED]
        embed_texts(asked, embedder, store, table=INSTRUCTIONS)
        store.tag(f"training-set-{night}")
    warehouse.ledger.once("llm", "clean", lambda: EffectOutcome(b"an answer", usd=0.5))
    listed = json.dumps([json.loads(READ["contract"]), 0]).encode()  # as its deployment names it
    warehouse.ledger.once("deploy", "files", lambda: EffectOutcome(listed, usd=0.5))
    local = EffectOutcome(b"Read one text file, says a local model", repeatable=True)
    warehouse.ledger.once(LOCAL_ANSWER, "local", lambda: local)
    pool = [{**row, "contract": json.loads(row["contract"])} for row in LISTED]
    save_pool(warehouse.home, "set", {row["contract_digest"]: row for row in pool})
    return warehouse


def iterate_bytes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file, in clear: tables as JSON, blobs decompressed."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data = pl.read_parquet(path).write_ndjson().encode()
        elif "blobs" in path.parts and data:
            data = zstandard.ZstdDecompressor().decompress(data)
        yield str(path.relative_to(folder)), data


def find_files(warehouse: Warehouse, text: str) -> list[str]:
    folders = (warehouse.home, warehouse.state)
    held = [
        file for folder in folders for file in iterate_bytes(folder) if text.encode() in file[1]
    ]
    return [name for name, _ in held if not name.startswith("takedowns/")]


def collect(warehouse: Warehouse) -> list[str]:
    found = find_garbage(make_place(warehouse, keep=GarbageLimits()))
    assert found.skipped == {}
    remove_garbage(found)
    assert found.failed == {}
    return [one.name for one in found.garbage if one.kind == KIND]


def list_faults(warehouse: Warehouse) -> list[str]:
    at = InspectedHome(warehouse.home, warehouse.state, everything=True)
    return list_broken(at, "certificates")


def write_jobs(home: Path) -> dict[str, Path]:
    jobs = {}
    for row in (*LISTED, {**READ, "set": "goes on"}):
        name, path = write_job(home, "caller", "base", str(row.get("set")) + row["tool"], {}, [row])
        jobs[row.get("set", row["server_id"])] = path
        if "set" not in row:
            write_atomically(home / "models" / name / CARD, b'{"training_set": "set"}')
    return jobs


@cases("name", "npm:files", "npm:files::read_file")
def test_jobs_of_finished_trainings_go_with_what_they_name(lived, name):
    jobs = write_jobs(lived.home)
    take_down(lived, name, "ann", "its owner asked")
    collect(lived)
    assert {of for of, path in jobs.items() if not path.exists()} == {"npm:files"}


def test_a_server_leaves_no_byte_of_any_night(lived):
    heads = lived.tables.list_publications(SNAPSHOTS.name, "registry")
    pairs = lived.tables.read(PAIRS)
    take_down(lived, "npm:files", "ann", "its owner asked")
    assert find_files(lived, "Read one text file")
    at = InspectedHome(lived.home, lived.state, everything=True)
    [left] = check_takedowns(at).findings
    assert (left.level, left.fix) == (NOTICE, "toolmill gc --yes")
    assert collect(lived)
    assert check_takedowns(at).findings == []
    assert collect(lived) == []
    assert find_files(lived, "Read one text file") == []
    assert find_files(lived, "Please read_file") == []
    assert list_faults(lived) == []
    for head in heads:
        rows = lived.tables.read(SNAPSHOTS, "registry", as_of=head.at)
        assert set(rows["server_id"]) == {"npm:clock", "npm:other"}
    assert lived.tables.read(PAIRS).equals(pairs.filter(pl.col("server_id") != "npm:files"))
    seen = [lived.ledger.seen(key) for key in ("clean", "files", "local")]
    assert seen == [b"an answer", None, None]
    assert lived.ledger.spent() == 1.0, "what was paid stays counted"
    assert set(load_pool(lived.home, "set")) == {row["contract_digest"] for row in (OTHER, TIME)}
    texts = [tool_text(json.loads(row["contract"])) for row in (TIME, OTHER)]
    store, embedder = LanceStore(lived.home / "lance"), WordEmbedder()
    embed_texts(texts, embedder, store)
    assert embedder.embedded == [], "the vectors of others stay"


def test_a_collection_that_is_killed_half_way_is_made_up_for(lived, tmp_path):
    take_down(lived, "npm:files", "ann", "its owner asked")
    lived.ledger.close()
    steps = [one for one in find_garbage(make_place(lived)).garbage if one.kind == KIND]
    shutil.copytree(lived.home, tmp_path / "killed" / "home")
    shutil.copytree(lived.state, tmp_path / "killed" / "state")
    killed = Warehouse(tmp_path / "killed" / "home", tmp_path / "killed" / "state")
    for one in find_garbage(make_place(killed)).garbage[: len(steps) // 2]:
        one.remove()
    assert find_files(killed, "Read one text file")
    collect(killed)
    assert find_files(killed, "Read one text file") == []
    assert list_faults(killed) == []


def test_what_is_lifted_before_a_collection_comes_back_whole(lived):
    before = lived.tables.read(SNAPSHOTS)
    take_down(lived, "npm:files", "ann", "its owner asked")
    lift_takedown(lived, "npm:files", "ann", "a mistake")
    assert lived.tables.read(SNAPSHOTS).equals(before)
    take_down(lived, "npm:files", "ann", "its owner asked")
    collect(lived)
    lift_takedown(lived, "npm:files", "ann", "a mistake")
    assert set(lived.tables.read(SNAPSHOTS)["server_id"]) == {"npm:clock", "npm:other"}
    publish_rows(lived, SNAPSHOTS, *before.to_dicts())  # as the next run lists it again
    assert lived.tables.read(SNAPSHOTS).equals(before)
    assert list(lived.home.glob("tables/snapshots/*/*.taken.json")) != []
    assert list_faults(lived) == []


def test_kept_calls_go_and_a_version_that_cannot_be_read_keeps_nothing_else(lived):
    log = CallLog(lived.home)
    for tool_id in ("npm:files::read_file", "npm:clock::now"):
        log.keep_trace("ann", "words", {"tool_id": tool_id, "arguments": {}, "status": "ok"}, "t")
    take_down(lived, "npm:files", "ann", "its owner asked")
    collect(lived)
    assert [line["tool_id"] for line in log.traces.read()] == ["npm:clock::now"]
    take_down(lived, "npm:files", "ann", "its owner asked")
    next(lived.home.glob("tables/pairs/*/*.parquet")).write_bytes(b"half")
    found = find_garbage(make_place(lived))
    assert "cannot be read" in found.skipped[KIND]
    assert "tables" not in found.skipped
