"""A collection takes the bytes of what was taken down, also where it is killed on its way."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from assets.contracts.canonical import tool_text
from assets.contracts.snapshot import SNAPSHOTS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import PAIRS
from assets.vectors.index import INSTRUCTIONS, build_server_text, embed_texts
from extensions.upkeep.checks import CHECKS, check_takedowns
from extensions.upkeep.collect import find_garbage, remove_garbage
from extensions.upkeep.health import BROKEN, NOTICE, InspectedHome, run_check
from extensions.upkeep.policy import GarbageLimits
from extensions.upkeep.purge import KIND
from extensions.upkeep.takedowns import lift_takedown, take_down
from tests.extensions.upkeep.conftest import make_deployment, publish_rows
from tests.extensions.upkeep.test_collect import make_place
from tests.vectors.conftest import WordEmbedder, snapshot
from training.runtime.model_store import CARD, write_job
from training.sets.pool import load_pool, save_pool
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.files import write_atomically
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse

READ = snapshot("npm:files", "read_file", "Read one text file from disk")
OTHER = snapshot("npm:other", "connect", "Connect to a service")
TIME = snapshot("npm:clock", "get_time", "Tell the time in a city")
ROWS = [READ, OTHER, TIME]


def make_pair(row: dict[str, Any], night: int) -> dict[str, Any]:
    same = {name: row[name] for name in ("server_id", "tool", "contract_digest")}
    asked = f"Please {row['tool']} for night {night}"
    return {"pair_id": f"{row['tool']}{night}", "license": "MIT", "instruction": asked, **same}


@pytest.fixture
def lived(warehouse: Warehouse) -> Warehouse:
    """Two nights of three servers: tables, blobs, paid answers, vectors, and a pool."""
    for night in range(2):
        deployed = []
        for row in ROWS:
            tools = json.dumps([json.loads(row["contract"]), night]).encode()
            deployed.append(
                make_deployment(warehouse, row["server_id"], "s", tools) | {"n_tools": night}
            )
        publish_rows(warehouse, DEPLOYMENTS, *deployed)
        publish_rows(warehouse, SNAPSHOTS, *({**row, "first_seen": f"{night}"} for row in ROWS))
        publish_rows(warehouse, PAIRS, *(make_pair(row, night) for row in ROWS))
        store, embedder = LanceStore(warehouse.home / "lance"), WordEmbedder()
        bodies = {row["server_id"]: json.loads(row["contract"]) for row in ROWS}
        texts = [tool_text(body) for body in bodies.values()]
        embed_texts(
            [*texts, *(build_server_text(n, [b]) for n, b in bodies.items())], embedder, store
        )
        asked = [make_pair(row, night)["instruction"] for row in ROWS]
        embed_texts(asked, embedder, store, table=INSTRUCTIONS)
        store.tag(f"training-set-{night}")
    warehouse.ledger.once("llm", "clean", lambda: EffectOutcome(b"an answer", usd=0.5))
    listed = json.dumps([json.loads(READ["contract"]), 0]).encode()  # as its deployment names it
    warehouse.ledger.once("deploy", "files", lambda: EffectOutcome(listed, usd=0.5))
    pool = {
        row["contract_digest"]: {**row, "contract": json.loads(row["contract"])} for row in ROWS
    }
    save_pool(warehouse.home, "set", pool)
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
        name for folder in folders for name, data in iterate_bytes(folder) if text.encode() in data
    ]
    return [name for name in held if not name.startswith("takedowns/")]


def collect(warehouse: Warehouse) -> list[str]:
    found = find_garbage(make_place(warehouse, keep=GarbageLimits()))
    assert found.skipped == {}
    remove_garbage(found)
    assert found.failed == {}
    return [one.name for one in found.garbage if one.kind == KIND]


def find_broken(warehouse: Warehouse) -> list[str]:
    at = InspectedHome(warehouse.home, warehouse.state, everything=True)
    checks = [check for check in CHECKS if check.name not in ("dagster", "certificates")]
    results = [run_check(check, at) for check in checks]
    return [
        f"{finding.thing}: {finding.problem}"
        for r in results
        for finding in r.findings
        if finding.level == BROKEN
    ]


def write_jobs(home: Path) -> dict[str, Path]:
    """A finished training for each server, and one of a server that goes on."""
    jobs = {}
    for row in (*ROWS, {**READ, "set": "goes on"}):
        name, path = write_job(home, "caller", "base", str(row.get("set")) + row["tool"], {}, [row])
        jobs[row.get("set", row["server_id"])] = path
        if "set" not in row:
            write_atomically(home / "models" / name / CARD, b'{"training_set": "set"}')
    return jobs


@pytest.mark.parametrize("name", ["npm:files", "npm:files::read_file"])
def test_jobs_of_finished_trainings_go_with_what_they_name(lived: Warehouse, name: str) -> None:
    jobs = write_jobs(lived.home)
    take_down(lived, name, "ann", "its owner asked")
    collect(lived)
    assert {of for of, path in jobs.items() if not path.exists()} == {"npm:files"}


def test_a_server_leaves_no_byte_of_any_night(lived: Warehouse) -> None:
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
    assert find_broken(lived) == []
    for head in heads:
        rows = lived.tables.read(SNAPSHOTS, "registry", as_of=head.at)
        assert set(rows["server_id"]) == {"npm:clock", "npm:other"}
    assert lived.tables.read(PAIRS).equals(pairs.filter(pl.col("server_id") != "npm:files"))
    assert lived.ledger.seen("clean") == b"an answer"
    assert lived.ledger.seen("files") is None
    assert lived.ledger.spent() == 1.0, "what was paid stays counted"
    kept = {row["contract_digest"] for row in (OTHER, TIME)}
    assert set(load_pool(lived.home, "set")) == kept
    texts = [tool_text(json.loads(row["contract"])) for row in (TIME, OTHER)]
    store, embedder = LanceStore(lived.home / "lance"), WordEmbedder()
    embed_texts(texts, embedder, store)
    assert embedder.embedded == [], "the vectors of others stay"


def test_a_collection_that_is_killed_half_way_is_made_up_for(
    lived: Warehouse, tmp_path: Path
) -> None:
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
    assert find_broken(killed) == []


def test_what_is_lifted_before_a_collection_comes_back_whole(lived: Warehouse) -> None:
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
    assert find_broken(lived) == []


def test_a_version_that_cannot_be_read_is_named_and_keeps_nothing_else(lived: Warehouse) -> None:
    take_down(lived, "npm:files", "ann", "its owner asked")
    next(lived.home.glob("tables/pairs/*/*.parquet")).write_bytes(b"half")
    found = find_garbage(make_place(lived))
    assert "cannot be read" in found.skipped[KIND]
    assert "tables" not in found.skipped
