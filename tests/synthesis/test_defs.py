"""Runs of synthesis through the real assets: what one may buy, move, take away, bring back."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.quarantined_tools import ANY_RULE, decide_on_tool
from assets.synthesis.judging.trials import ALL, JUDGE_TRIALS
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS
from tests.contracts.pipeline import MARKET, Pipeline
from warehouse.store import Warehouse

Row = dict[str, Any]


@pytest.fixture
def pipeline(honest_root: Path, tmp_path: Path) -> Pipeline:
    root = shutil.copytree(honest_root, tmp_path / "root")
    return Pipeline(Warehouse(home=root / "home", state=root / "state"))


def paid(pipeline: Pipeline) -> int:
    counts = pipeline.warehouse.ledger.counts()
    return sum(n for (stage, _), n in counts.items() if stage.startswith("llm:"))


def version(pipeline: Pipeline) -> tuple[str, str]:
    heads = [pipeline.warehouse.tables.head(spec.name, MARKET) for spec in (PAIRS, JUDGEMENTS)]
    assert all(heads)
    return heads[0].digest, heads[1].digest  # type: ignore[union-attr]


def shown(row: Row) -> set[str]:
    return set(json.loads(row["contracts"]))


def decide(pipeline: Pipeline, digest: str, verdict: str) -> None:
    decide_on_tool(
        pipeline.warehouse, digest, rule=ANY_RULE, verdict=verdict, by="test", why="to see"
    )


def test_a_first_run_writes_every_task_with_a_whole_receipt(pipeline: Pipeline) -> None:
    rows = pipeline.read_rows(PAIRS)
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


def test_an_unchanged_world_asks_nobody_and_moves_nothing(pipeline: Pipeline) -> None:
    before, request = version(pipeline), paid(pipeline)
    pipeline.run_nightly()
    assert (version(pipeline), paid(pipeline)) == (before, request)


def test_holding_a_tool_takes_its_rows_and_releasing_it_brings_them_back_unpaid(
    pipeline: Pipeline,
) -> None:
    before, rows = version(pipeline), pipeline.read_rows(PAIRS)
    digest = pipeline.read_digest("npm:song", "find_song")
    decide(pipeline, digest, "held")
    pipeline.run_nightly()
    left = pipeline.read_rows(PAIRS)
    assert all(digest not in shown(row) for row in left)
    unseen = {row["pair_id"] for row in rows if digest not in shown(row)}
    assert unseen <= {row["pair_id"] for row in left}
    judged = {row["pair_id"] for row in pipeline.read_rows(JUDGEMENTS)}
    assert judged <= {row["pair_id"] for row in left}
    decide(pipeline, digest, "released")
    request = paid(pipeline)
    pipeline.run_nightly()
    assert version(pipeline) == before
    assert paid(pipeline) == request


def test_the_trial_of_the_judge_is_published_with_its_verdicts(pipeline: Pipeline) -> None:
    rows = pipeline.read_rows(JUDGE_TRIALS)
    assert {row["stage"] for row in rows} == {"rules", "judge", "rules+judge"}
    [both] = [row for row in rows if (row["stage"], row["kind"]) == ("rules+judge", ALL)]
    assert both["n"] >= 100
    assert both["low"] < both["rate"] < both["high"]
    assert {row["judge"] for row in rows} == {"offline:rules"}
