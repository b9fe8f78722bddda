"""What depends on a contract: all of it and nothing else, and one clear error where it is not plain
which tool is meant."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from assets.contracts.canonical import tool_text
from assets.contracts.snapshot import SNAPSHOTS
from assets.vectors.index import VECTORS, digest_text
from orchestration.cli.app import app
from serving.index.build import build_index, move_pointer
from serving.index.model import IndexSource
from tests.synthesis.export_rows import pair, publish, published, snapshot, tool
from training.adapter_table import make_adapter_table
from training.evaluation.retriever import RETRIEVER_EVALUATION
from training.releases.champion import RoleChampion
from training.releases.release import make_release
from training.reporting.blast_radius import (
    AmbiguousTool,
    ContractProducts,
    ContractTarget,
    UnknownTool,
    find_blast_radius,
    find_tool,
)
from training.runtime.model_store import save_model
from training.sets.training_set import TRAINING_SET
from warehouse.storage.files import write_atomically
from warehouse.storage.lance import LanceStore, make_vector_key
from warehouse.store import Warehouse

FILE, ISSUE = snapshot("npm:file", "find"), snapshot("npm:issue", "find")
SEEN = [
    ("npm:@a/b", "get", "c1:1"),
    ("npm:@a/b", "get", "c1:2"),
    ("npm:c", "get", "c1:3"),
    ("npm:c", "list_all", "c1:4"),
    ("npm:d", "copy", "c1:4"),
]


def test_a_tool_is_named_by_server_and_tool_or_alone_or_by_digest() -> None:
    both = find_tool("npm:@a/b::get", SEEN)
    assert both == ContractTarget(
        frozenset({"c1:1", "c1:2"}), "npm:@a/b", "get"
    )  # every one it ever had
    assert find_tool("list_all", SEEN).digests == {"c1:4"}
    assert find_tool("c1:4", SEEN) == ContractTarget(frozenset({"c1:4"}))


def test_a_name_that_is_not_plain_is_an_error_with_names_that_are_near() -> None:
    with pytest.raises(AmbiguousTool, match=r"tool of 2 servers.*npm:@a/b::get, npm:c::get"):
        find_tool("get", SEEN)
    with pytest.raises(UnknownTool, match=r"list_al was never published.*near: .*list_all"):
        find_tool("list_al", SEEN)
    with pytest.raises(UnknownTool, match="an empty name was never published"):
        find_tool("", SEEN)
    with pytest.raises(UnknownTool) as error:
        find_tool("\x1b[31mx", SEEN)
    assert "\x1b" not in str(error.value)


def test_a_named_tool_is_not_its_twin_on_another_server() -> None:
    rows = [{"pair_id": s, "server_id": s, "tool": t, "contract_digest": "c1:4", "calls": "[]"}
            for s, t in (("npm:c", "list_all"), ("npm:d", "copy"))]  # fmt: skip
    given = [{**row, "task": "single", "verdict": "accept"} for row in rows]
    one = find_blast_radius(find_tool("copy", SEEN), ContractProducts(pairs=given))
    assert [row["pair_id"] for row in one["pairs"]["rows"]] == ["npm:d"]
    assert (
        find_blast_radius(find_tool("c1:4", SEEN), ContractProducts(pairs=given))["pairs"]["count"]
        == 2
    )


@pytest.fixture
def published_warehouse(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Pairs of three servers, a training set with one of them, and a model trained on it."""
    home = warehouse.home
    pairs = published(warehouse)
    beside = {"contracts": "[]", "offered": "[]"}
    alone = pair("npm:issue", "single", 5, **beside)
    publish_more(warehouse, [*pairs, alone])
    own = pair("npm:file", "single")
    row = {"pair_id": own["pair_id"], "server_id": "npm:file", "tool": FILE["tool"],
           "split": "train", "contract_digest": FILE["contract_digest"],
           "negatives": "[]"}  # fmt: skip
    publish(warehouse, TRAINING_SET, [row])
    [head] = warehouse.tables.history(TRAINING_SET.name)
    other = {**row, "pair_id": alone["pair_id"], "server_id": "npm:issue", "tool": ISSUE["tool"],
             "contract_digest": ISSUE["contract_digest"]}  # fmt: skip
    publish(warehouse, TRAINING_SET, [other])
    for name, made in (("m-old", head.digest), ("m-none", "another-set")):
        card = {"name": name, "role": "retriever", "base": "x", "training_set": made}
        save_model(home, name, card, lambda folder: None)
    promoted = json.dumps(RoleChampion("retriever", "m-old", head.digest).__dict__)
    write_atomically(home / "champions" / "retriever.json", promoted.encode())
    make_release(home, {"retriever": "m-old", "caller": "baseline:bm25+slots"}, "c", head.digest)
    item = {"model": "m-old", "pair_id": own["pair_id"], "server_id": "npm:file",
            "training_set": head.digest}  # fmt: skip
    publish(warehouse, RETRIEVER_EVALUATION, [item])
    vectors(warehouse)
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    assert make_adapter_table("retriever").name == "retriever_adapter"
    return warehouse


def publish_more(warehouse: Warehouse, pairs: list[dict[str, Any]]) -> None:
    from assets.synthesis.tables import JUDGEMENTS, PAIRS
    from tests.synthesis.export_rows import judgement

    publish(warehouse, PAIRS, pairs)
    publish(warehouse, JUDGEMENTS, [judgement(row) for row in pairs])


def vectors(warehouse: Warehouse) -> None:
    """Membership of two tools and a server, one vector of them stored, and a served index."""
    store = LanceStore(warehouse.home / "lance")
    text = tool_text(tool("npm:file", "find"))
    one = np.ones(4, np.float32) / 2
    store.insert([{"key": make_vector_key(digest_text(text), "e"), "text_digest": digest_text(text),
                   "embedder": "e", "kind": "tool", "text": text, "vector": one}])  # fmt: skip
    rows = [{**snap, "kind": "tool", "embedder": "e",
             "text_digest": digest_text(tool_text(json.loads(snap["contract"])))}
            for snap in (FILE, ISSUE)]  # fmt: skip
    servers = [
        {
            "marketplace": "registry",
            "server_id": name,
            "tool": "",
            "kind": "server",
            "embedder": "e",
            "text_digest": name,
        }
        for name in ("npm:file", "npm:issue")
    ]
    publish(warehouse, VECTORS, [*rows, *servers])
    version = build_index(
        warehouse.home,
        IndexSource([FILE, ISSUE]),
        lambda texts: np.eye(len(texts), 4, dtype=np.float32),
        embedder="e",
    )
    move_pointer(warehouse.home, version)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["blast-radius", *arguments])


def test_the_command_lists_all_that_depends_on_a_tool(published_warehouse: Warehouse) -> None:
    done = run("npm:file::find.file", "--json")
    assert done.exit_code == 0, done.output
    radius = json.loads(done.stdout)
    assert radius["contracts"] == [FILE["contract_digest"]]
    assert radius["pairs"]["by_because"] == {"about": 8}
    assert radius["judgements"]["by_verdict"] == {"accept": 8}
    assert radius["vectors"]["by_kind"] == {"server": 1, "tool": 1}
    assert {row["kind"]: row["stored"] for row in radius["vectors"]["rows"]} == {
        "tool": True, "server": False}  # fmt: skip
    assert [row["tool_id"] for row in radius["router_index"]["rows"]] == ["npm:file::find.file"]
    assert radius["eval_items"]["by_role"] == {"retriever": 1}
    [old] = radius["training_sets"]["rows"]
    assert (old["rows"], old["current"]) == (1, False)  # a set that was replaced since
    assert [row["model"] for row in radius["adapters"]["rows"]] == ["m-old"]
    assert radius["champions"]["by_role"] == {"retriever": 1}
    assert [row["role"] for row in radius["release"]["rows"]] == ["retriever"]


def test_a_rival_that_prompts_showed_is_a_dependency_too(published_warehouse: Warehouse) -> None:
    radius = json.loads(run("drop.file", "--json").stdout)
    shown = radius["pairs"]["by_because"]
    assert shown == {"calls": 2, "shown": 22}  # of 25 pairs; one saw no rival
    assert [row["model"] for row in radius["adapters"]["rows"]] == ["m-old"]  # through such a pair
    assert json.loads(run("drop.note", "--json").stdout)["vectors"]["count"] == 0


def test_counts_on_a_terminal(published_warehouse: Warehouse) -> None:
    done = run("npm:file::find.file")
    assert done.stdout.splitlines()[0].startswith("npm:file::find.file  1 contracts: c1:")
    assert any(line.split()[:2] == ["8", "pairs"] for line in done.stdout.splitlines())
    assert any("role retriever: 1" in line for line in done.stdout.splitlines())


def test_exit_codes(published_warehouse: Warehouse) -> None:
    twin = {**FILE, "server_id": "npm:twin"}
    publish(published_warehouse, SNAPSHOTS, [FILE, ISSUE, twin])
    unknown, ambiguous = run("find.fil"), run("find.file")
    assert (unknown.exit_code, ambiguous.exit_code) == (2, 2)
    assert "near: " in unknown.stderr
    assert "npm:twin::find.file" in ambiguous.stderr
    assert run(FILE["contract_digest"]).exit_code == 0
    assert len(unknown.stderr.strip().splitlines()) == 1


def test_an_empty_home_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    done = run("anything")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing was made there yet" in done.stderr
