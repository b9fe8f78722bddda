"""Runs of synthesis through the real assets: what one may buy, move and take away; batches."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.contracts.quarantined_tools import ANY_RULE, decide_on_tool
from assets.synthesis.defs import judgements, pairs
from assets.synthesis.judging.trials import ALL, JUDGE_TRIALS
from assets.synthesis.policy import SynthesisPolicy, TaskShares
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS
from assets.synthesis.writing.writer import PairWriter
from extensions.batch.harvest import advance_open
from orchestration.settings.schema import RolesSection
from tests.contracts.pipeline import MARKET, Pipeline
from tests.support.batch_endpoint import BatchServer, batch_endpoint
from tests.synthesis.scripted import NO_TASKS, scripted
from warehouse.llm.client import Role
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


def test_a_first_run_writes_every_task_with_a_whole_receipt(pipeline):
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
    rows = pipeline.read_rows(JUDGE_TRIALS)
    assert {row["stage"] for row in rows} == {"rules", "judge", "rules+judge"}
    [both] = [row for row in rows if (row["stage"], row["kind"]) == ("rules+judge", ALL)]
    assert both["n"] >= 100
    assert both["low"] < both["rate"] < both["high"]
    assert {row["judge"] for row in rows} == {"offline:rules"}
    before, request = version(pipeline), paid(pipeline)
    pipeline.run_nightly()  # an unchanged world asks nobody
    assert (version(pipeline), paid(pipeline)) == (before, request)


def test_holding_a_tool_takes_its_rows_and_releasing_it_brings_them_back_unpaid(pipeline):
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


Rows = dict[str, dict[str, Any]]
POLICY = SynthesisPolicy(
    pairs_per_tool=2, tasks=TaskShares(**NO_TASKS), checks=False, evolve_share=0.0, world_pairs=0
)


class Batched:
    """One marketplace whose generator (and judge) answers by batch; all others are offline."""

    def __init__(self, root: Path, server: BatchServer, batched: tuple[str, ...]) -> None:
        self.warehouse = Warehouse(home=root / "home", state=root / "state")
        self.pipeline, self.server = Pipeline(self.warehouse), server
        model: dict[str, Any] = {"model": "m-1", "base_url": server.url, "api_key": "k"}
        settings = {name: {**model, "batch": True} for name in batched}
        self.roles = {
            name: Role(name=name, **{"temperature": 0.0, **settings.get(name, {})})
            for name in RolesSection.model_fields
        }

    def run(self, *assets: dg.AssetsDefinition) -> dict[str, Any]:
        """Makes these (default: `pairs` and `judgements`); the metadata of `pairs`."""
        given = {
            "warehouse": self.warehouse,
            "embedder": self.pipeline.embedder,
            "writer": PairWriter(tuple(self.roles.values()), POLICY),
        }
        lines = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in given.items()}
        expected = assets or (pairs, judgements)
        result = dg.materialize(expected, resources=lines, partition_key=MARKET)
        assert result.success
        [answer] = result.asset_materializations_for_node("pairs")
        return {name: value.value for name, value in answer.metadata.items()}

    def harvest(self) -> None:
        self.server.end()
        for batch in advance_open(self.warehouse.ledger, self.roles):
            assert (batch.state, batch.problem) == ("harvested", "")

    def read(self, spec: Any) -> Rows:
        return {row["pair_id"]: row for row in self.pipeline.read_rows(spec)}


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_endpoint(scripted()) as answer:
        yield answer


def open_root(honest_root: Path, folder: Path, *, fresh: bool) -> Path:
    root = shutil.copytree(honest_root, folder / "root")
    for spec in (PAIRS, JUDGEMENTS) if fresh else ():
        shutil.rmtree(root / "home" / "tables" / spec.name)
    return root


def test_a_generator_by_batch_publishes_pending_rows_then_writes(honest_root, tmp_path, server):
    market = Batched(open_root(honest_root, tmp_path, fresh=True), server, ("generator",))
    before = market.warehouse.ledger.spent()
    metadata = market.run(pairs)
    waiting = market.read(PAIRS)
    assert {row["status"] for row in waiting.values()} == {"pending"}
    assert {row["error_kind"] for row in waiting.values()} == {"pending"}
    opened = market.warehouse.ledger.batches.find("sent")[0]
    retry_at = {row["retry_at"] for row in waiting.values()}
    assert all(abs(at - opened.opened_at - 86_400) < 60 for at in retry_at)
    assert metadata["pending"] == len(waiting)
    assert "sent" in metadata["batches"]
    [submitted] = server.batches.values()
    assert 2 * len(server.read_requests(submitted)) == len(waiting), "one request writes two"
    version = market.warehouse.tables.head("pairs", MARKET)
    market.run(pairs)
    assert market.warehouse.tables.head("pairs", MARKET) == version, "a wait moves nothing"
    market.harvest()
    market.run(pairs)
    rows = market.read(PAIRS)
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert {row["model"] for row in rows.values()} == {"m-1"}
    assert not server.direct
    assert market.warehouse.ledger.spent() == before, "nobody stated a price"


@pytest.mark.slow
def test_what_was_current_stays_until_the_batch_is_answered(honest_root, tmp_path, server):
    market = Batched(open_root(honest_root, tmp_path, fresh=False), server, ("generator", "judge"))
    singles = {name: row for name, row in market.read(PAIRS).items() if row["task"] == "single"}
    verdicts = market.read(JUDGEMENTS)
    market.run()
    assert market.read(PAIRS).keys() == singles.keys()
    assert {row["status"] for row in market.read(PAIRS).values()} == {"ok"}
    rows_kept = market.read(JUDGEMENTS)
    assert rows_kept
    assert all(verdicts[name]["score"] == row["score"] for name, row in rows_kept.items())
    assert {item.stage for item in market.warehouse.ledger.batches.find()} == {
        "pairs",
        "judgements",
    }
    for _ in range(2):  # the pairs that were waited for, then their verdicts
        market.harvest()
        market.run()
    answer = market.read(PAIRS)
    assert {row["model"] for row in answer.values()} == {"m-1"}
    judged = market.read(JUDGEMENTS)
    assert {row["judge"] for row in judged.values()} == {"model:m-1"}
    assert judged.keys() <= answer.keys()
    assert set(server.answered.values()) == {1}
    assert not server.direct
