"""`toolmill quarantine` and `toolmill contract history` over runs that really happened."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assets.contracts.defs import contract_changes, findings, snapshots
from tests.contracts.pipeline import MARKET, Pipeline, honest_servers, poison_tool
from tests.support.cases import cases
from tests.support.command import toolmill
from warehouse.store import Warehouse

BAD = ("npm:photo", "find_photo")
SAID = ("--by", "ann", "--why", "read it")
NONE = "c1:" + "0" * 64


@pytest.fixture(scope="module")
def poisoned_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of `home` and `state` after two runs, in the second of which a tool is poisoned."""
    root = tmp_path_factory.mktemp("poisoned")
    result = Pipeline(Warehouse(home=root / "home", state=root / "state"))
    result.deploy(honest_servers())
    result.run([snapshots, findings], MARKET)
    servers = honest_servers()
    servers["npm:photo"][0] = poison_tool(servers["npm:photo"][0])
    result.deploy(servers)
    result.run([snapshots, findings], MARKET)
    result.warehouse.ledger.close()
    return root


@pytest.fixture
def pipeline(
    poisoned_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pipeline]:
    root = shutil.copytree(poisoned_root, tmp_path / "root")
    warehouse = Warehouse(home=root / "home", state=root / "state")
    monkeypatch.setenv("TOOLMILL_HOME", str(warehouse.home))
    monkeypatch.chdir(root)
    yield Pipeline(warehouse)
    warehouse.ledger.close()


def held() -> dict[str, set[str]]:
    code, out, _ = toolmill("quarantine", "--json")
    assert code == 0
    result: dict[str, set[str]] = {}
    for row in json.loads(out)["held"]:
        result.setdefault(row["tool"], set()).add(row["rule"])
    return result


def test_the_list_names_what_holds_a_tool_and_a_release_of_each_rule_empties_it(pipeline):
    rules = held()["find_photo"]
    assert "rug_pull" in rules
    name = pipeline.read_digest(*BAD)
    for rule in sorted(rules):
        assert "find_photo" in held()
        code, out, _ = toolmill("quarantine", name, "--release", rule, *SAID)
        assert (code, out.split()[:3]) == (0, ["released", *BAD])
    assert held() == {}


def test_a_hold_is_listed_with_who_held_it(pipeline):
    name = pipeline.read_digest("npm:song", "find_song")
    code, _, _ = toolmill("quarantine", name, "--hold", "--by", "ann\x1b[2J", "--why", "odd")
    assert code == 0
    code, out, _ = toolmill("quarantine")
    assert "find_song  * (high)  by ann\\u{1b}[2J" in out
    assert out.endswith("\ntools held: 2\n")
    assert "\x1b" not in out
    code, _, _ = toolmill("quarantine", name, "--release", "*", *SAID)
    assert (code, set(held())) == (0, {"find_photo"})


@cases(
    "arguments",
    (NONE, "--release", "concealment", *SAID),
    (NONE.removeprefix("c1:"), "--release", "concealment", *SAID),
    (NONE, "--release", "no_such_rule", *SAID),
    (NONE, "--hold", "--by", " ", "--why", "x"),
    (NONE, "--hold"),
    (NONE, "--release", *SAID),
)
def test_what_cannot_be_decided_is_refused_with_its_code(pipeline, arguments):
    assert toolmill("quarantine", *arguments)[:2] == (2, "")


def test_a_broken_record_is_one_line_and_code_1(pipeline):
    toolmill("quarantine", pipeline.read_digest(*BAD), "--hold", *SAID)
    [path] = pipeline.warehouse.home.rglob("decisions.jsonl")
    path.write_text("{}\n")
    code, out, err = toolmill("quarantine", pipeline.read_digest(*BAD), "--hold", *SAID)
    assert code == 0  # a decision is added, not read
    code, out, err = toolmill("quarantine")
    assert (code, out, len(err.splitlines())) == (1, "", 1)


def test_the_history_of_a_server_holds_each_change_and_one_that_was_never_seen_is_named(pipeline):
    pipeline.run([contract_changes])
    code, out, _ = toolmill("contract", "history", "npm:photo", "--json")
    report = json.loads(out)
    assert code == 0
    tools = {tool["tool"]: tool["contracts"] for tool in report["tools"]}
    assert [tool["current"] for tool in tools["find_photo"]] == [False, True]
    assert [tool["current"] for tool in tools["make_photo"]] == [True]
    assert tools["find_photo"][1]["contract_digest"] == pipeline.read_digest(*BAD)
    [change] = report["changes"]
    assert (change["tool"], change["class"]) == ("find_photo", "suspicious")
    assert "secret" in change["why"]
    code, out, _ = toolmill("contract", "history", "npm:photo")
    assert (code, out.count("c1:")) == (0, 4)
    code, out, err = toolmill("contract", "history", "npm:nobody")
    assert (code, out) == (2, "")
    assert "npm:nobody" in err


def test_a_decision_reaches_the_index_that_is_served_now(pipeline):
    blocked = pipeline.warehouse.home / "router" / "BLOCKED.json"
    name = pipeline.read_digest(*BAD)
    assert not blocked.exists()
    assert toolmill("quarantine", name, "--hold", *SAID)[0] == 0
    assert json.loads(blocked.read_bytes())["digests"] == [name]
    for rule in sorted(held()["find_photo"]):
        assert toolmill("quarantine", name, "--release", rule, *SAID)[0] == 0
    assert json.loads(blocked.read_bytes())["digests"] == []
