"""Runs of synthesis through the real assets: what one may buy, move, take away, bring back."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.quarantine.decisions import ANY_RULE
from assets.contracts.quarantine.held_tools import decide_on_tool
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS, TASKS, make_tool_key
from assets.synthesis.judging.trial.trials import ALL, JUDGE_TRIALS
from tests.contracts.world import MARKET, World, honest_servers
from warehouse.store import Warehouse

Row = dict[str, Any]


@pytest.fixture
def world(honest_root: Path, tmp_path: Path) -> World:
    root = shutil.copytree(honest_root, tmp_path / "root")
    return World(Warehouse(home=root / "home", state=root / "state"))


def paid(world: World) -> int:
    counts = world.warehouse.ledger.counts()
    return sum(n for (stage, _), n in counts.items() if stage.startswith("llm:"))


def version(world: World) -> tuple[str, str]:
    heads = [world.warehouse.tables.head(spec.name, MARKET) for spec in (PAIRS, JUDGEMENTS)]
    assert all(heads)
    return heads[0].digest, heads[1].digest  # type: ignore[union-attr]


def shown(row: Row) -> set[str]:
    return set(json.loads(row["contracts"]))


def decide(world: World, digest: str, verdict: str) -> None:
    decide_on_tool(world.warehouse, digest, rule=ANY_RULE, verdict=verdict, by="test", why="to see")


def test_a_first_run_writes_every_task_with_a_whole_receipt(world: World) -> None:
    rows = world.read_rows(PAIRS)
    assert {row["task"] for row in rows} >= set(TASKS) - {"lookalike", "sequential"}
    for row in rows:
        assert row["status"] == "ok", (row["task"], row["failed_step"], row["hint"])
        assert row["contract_digest"] in shown(row)
        steps = json.loads(row["steps"])
        assert sum(step["prompt_tokens"] for step in steps) == row["prompt_tokens"]
        assert {step["model"] for step in steps} == {row["model"]}
        assert row["provider"] == "offline"
        assert json.loads(row["prompts"])
        assert json.loads(row["messages"])[0]["content"] == row["instruction"]


def test_an_unchanged_world_asks_nobody_and_moves_nothing(world: World) -> None:
    before, asked = version(world), paid(world)
    world.run_nightly()
    assert (version(world), paid(world)) == (before, asked)


def test_holding_a_tool_takes_its_rows_and_releasing_it_brings_them_back_unpaid(
    world: World,
) -> None:
    before, rows = version(world), world.read_rows(PAIRS)
    digest = world.read_digest("npm:song", "find_song")
    decide(world, digest, "held")
    world.run_nightly()
    left = world.read_rows(PAIRS)
    assert all(digest not in shown(row) for row in left)
    unseen = {row["pair_id"] for row in rows if digest not in shown(row)}
    assert unseen <= {row["pair_id"] for row in left}
    judged = {row["pair_id"] for row in world.read_rows(JUDGEMENTS)}
    assert judged <= {row["pair_id"] for row in left}
    decide(world, digest, "released")
    asked = paid(world)
    world.run_nightly()
    assert version(world) == before
    assert paid(world) == asked


def test_a_renamed_parameter_carries_its_pairs_over(world: World) -> None:
    servers = honest_servers()
    [tool] = [tool for tool in servers["npm:song"] if tool["name"] == "find_song"]
    properties = tool["inputSchema"]["properties"]
    properties["heading"] = properties.pop("title")
    required = tool["inputSchema"].get("required") or []
    tool["inputSchema"]["required"] = ["heading" if n == "title" else n for n in required]
    before = [row for row in world.read_rows(PAIRS) if make_tool_key(row) == "npm:song/find_song"]
    world.deploy(servers)
    world.run_nightly()
    after = [row for row in world.read_rows(PAIRS) if make_tool_key(row) == "npm:song/find_song"]
    moved = [row for row in after if row["migrated_from"]]
    assert moved
    old = {row["pair_id"]: row for row in before}
    for row in moved:
        was = old[row["migrated_from"]]
        assert row["instruction"] == was["instruction"]
        assert row["contract_digest"] == world.read_digest("npm:song", "find_song")
        said, now = json.loads(was["arguments"] or "{}"), json.loads(row["arguments"] or "{}")
        assert now == {("heading" if k == "title" else k): v for k, v in said.items()}
    version_now = version(world)
    world.run_nightly()
    assert version(world) == version_now


def test_the_trial_of_the_judge_is_published_with_its_verdicts(world: World) -> None:
    rows = world.read_rows(JUDGE_TRIALS)
    assert {row["stage"] for row in rows} == {"rules", "rules+judge"}
    [both] = [row for row in rows if (row["stage"], row["kind"]) == ("rules+judge", ALL)]
    assert both["n"] >= 100
    assert both["low"] < both["rate"] < both["high"]
    assert {row["judge"] for row in rows} == {"offline:rules"}
