"""Runs of synthesis through the real assets: what one may buy, move and take away; batches; what
fails of one item in a way nobody foresaw is its row, and the others are as they would have been."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts import findings, quarantined_tools
from assets.contracts import snapshot as snapshots
from assets.contracts.snapshot import SNAPSHOTS, build_snapshot, list_malformed
from assets.synthesis import summaries
from assets.synthesis.defs import judgements, pairs
from assets.synthesis.judging import judge as judging
from assets.synthesis.judging import plan as judging_plan
from assets.synthesis.judging.trials import ALL, JUDGE_TRIALS
from assets.synthesis.policy import SynthesisPolicy, TaskShares
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS
from assets.synthesis.verify import filters
from assets.synthesis.writing import plan
from assets.synthesis.writing import units as writing_units
from assets.synthesis.writing.units import plan_units
from assets.synthesis.writing.writer import PairWriter
from assets.vectors import index
from extensions.batch.batch_ledger import BatchLedger
from extensions.batch.harvest import advance_open
from orchestration.settings.schema import RolesSection
from tests.contracts.pipeline import MARKET, Pipeline
from tests.support.batch_endpoint import BatchServer, batch_endpoint
from tests.support.cases import cases
from tests.support.examples import examples, json_values
from tests.synthesis.contracts import CITY_TIME, CONVERT, PING, READ_FILE, snapshot_rows
from tests.synthesis.judging.test_judge import CONTRACTS, POLICY, ROWS
from tests.synthesis.scripted import ALL_TASKS, NO_TASKS, SINGLES, offline_llm, others, planned
from tests.synthesis.scripted import scripted as script_answers
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


def version(pipeline: Pipeline) -> list[str]:
    heads = [pipeline.warehouse.tables.head(spec.name, MARKET) for spec in (PAIRS, JUDGEMENTS)]
    return [head.digest for head in heads if head]


def shown(row: Row) -> set[str]:
    return set(json.loads(row["contracts"]))


def decide(pipeline: Pipeline, digest: str, verdict: str) -> None:
    how = {"rule": quarantined_tools.ANY_RULE, "verdict": verdict, "by": "test", "why": "to see"}
    quarantined_tools.decide_on_tool(pipeline.warehouse, digest, **how)


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
    assert (version(pipeline), paid(pipeline)) == (before, request)


Rows = dict[str, dict[str, Any]]
RUN_POLICY = SynthesisPolicy(
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
        writer = PairWriter(tuple(self.roles.values()), RUN_POLICY)
        given = {"warehouse": self.warehouse, "embedder": self.pipeline.embedder, "writer": writer}
        stored = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in given.items()}
        wanted = assets or (pairs, judgements)
        result = dg.materialize(wanted, resources=stored, partition_key=MARKET)
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
    with batch_endpoint(script_answers()) as answer:
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
    assert {(row["status"], row["error_kind"]) for row in waiting.values()} == {
        ("pending", "pending")
    }
    opened = BatchLedger(market.warehouse.ledger).find("sent")[0]
    due = opened.opened_at + 86_400
    assert all(abs(row["retry_at"] - due) < 60 for row in waiting.values())
    assert (metadata["pending"], "sent" in metadata["batches"]) == (len(waiting), True)
    [submitted] = server.batches.values()
    assert 2 * len(server.read_requests(submitted)) == len(waiting), "one request writes two"
    version = market.warehouse.tables.head("pairs", MARKET)
    market.run(pairs)
    assert market.warehouse.tables.head("pairs", MARKET) == version, "a wait moves nothing"
    market.harvest()
    market.run(pairs)
    rows = market.read(PAIRS).values()
    assert {(row["status"], row["model"]) for row in rows} == {("ok", "m-1")}
    assert not server.direct
    assert market.warehouse.ledger.spent() == before, "nobody stated a price"


@pytest.mark.slow
def test_what_was_current_stays_until_the_batch_is_answered(
    honest_root, tmp_path, server, monkeypatch
):
    monkeypatch.setattr(judging_plan, "audit_trial", lambda _: [])  # this judge accepts everything
    market = Batched(open_root(honest_root, tmp_path, fresh=False), server, ("generator", "judge"))
    singles = {name: row for name, row in market.read(PAIRS).items() if row["task"] == "single"}
    verdicts = market.read(JUDGEMENTS)
    market.run()
    assert market.read(PAIRS).keys() == singles.keys()
    assert {row["status"] for row in market.read(PAIRS).values()} == {"ok"}
    rows_kept = market.read(JUDGEMENTS)
    assert rows_kept
    assert all(verdicts[name]["score"] == row["score"] for name, row in rows_kept.items())
    stages = {batch.stage for batch in BatchLedger(market.warehouse.ledger).find()}
    assert stages == {"pairs", "judgements"}
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


TRACE = "RuntimeError at tests/"


def break_one(function: Any, is_it: Any) -> Any:
    """The function, which raises for the one item that `is_it` knows by its arguments."""

    def broken(*args: Any, **more: Any) -> Any:
        if is_it(*args):
            raise RuntimeError("what a third party sent")
        return function(*args, **more)

    return broken


def embed(texts: Sequence[str]) -> np.ndarray:
    return np.eye(len(texts), 8, dtype=np.float32)


def check(hint: str) -> None:
    assert hint.startswith(TRACE)
    assert ", trace " in hint
    assert "third party" not in hint


def test_a_list_that_fails_keeps_the_last_contracts(ledger, monkeypatch):
    def deployed(server: str, text: str) -> dict[str, Any]:
        tools = [{"name": "a", "description": text, "inputSchema": {"type": "object"}}]
        blob = ledger.blobs.put(json.dumps(tools).encode())
        return {"server_id": server, "marketplace": "m", "status": "ok", "recipe_digest": "r",
                "probed_at": 0.0, "tools_blob": blob}  # fmt: skip

    first = build_snapshot([], [deployed("one", "A."), deployed("two", "B.")], ledger.blobs, 0.0)
    now = [deployed("one", "C."), deployed("two", "D.")]
    read = break_one(snapshots.read_raw_tools, lambda row, _: row["server_id"] == "one")
    monkeypatch.setattr(snapshots, "read_raw_tools", read)
    rows = SNAPSHOTS.frame(build_snapshot(first, now, ledger.blobs, 0.0)).to_dicts()
    assert [json.loads(row["contract"])["description"] for row in rows] == ["A.", "D."]
    [malformed] = list_malformed(now, ledger.blobs)
    assert malformed["server_id"] == "one"
    assert malformed["problem"].startswith(f"internal: {TRACE}")


def test_a_tool_whose_scan_fails_is_held(monkeypatch):
    rows = snapshot_rows([CITY_TIME, PING])
    for row in rows:
        row |= {"schema_problem": None, "contract": json.dumps(row["contract"])}
    scan = break_one(findings.scan_tool, lambda tool, *_: tool["name"] == PING["name"])
    with monkeypatch.context() as patched:
        patched.setattr(findings, "scan_tool", scan)
        first = findings.scan_snapshot(rows, {}, {}, run_date="2026-01-01")
    lines = [row for row in first.rows if row["rule"] == "not_scanned"]
    assert [(row["tool"], row["severity"]) for row in lines] == [(PING["name"], "high")]
    check(lines[0]["excerpt"])
    again = findings.scan_snapshot(rows, {}, {}, scans=first.scans, run_date="2026-01-02")
    assert again.read == 1  # it alone: the next run reads it once more
    assert not [row for row in again.rows if row["rule"] == "not_scanned"]


def test_a_summary_that_fails_is_a_row_and_a_contract_without_text_keeps_its_name(monkeypatch):
    rows = snapshot_rows([CITY_TIME, PING])
    rows[1] = {**rows[1], "server_id": "npm:other"}
    write = break_one(summaries.write_summary, lambda name, _: name == "other")
    monkeypatch.setattr(summaries, "write_summary", write)
    answer, _ = summaries.make_summaries(rows, {}, None)
    outcomes = {row["server_id"]: (row["status"], row["error_kind"]) for row in answer}
    assert outcomes == {rows[0]["server_id"]: ("ok", None), "npm:other": ("failed", "internal")}
    check(next(row["hint"] for row in answer if row["status"] == "failed"))
    assert summaries.make_row.__name__ == "make_row"
    rows = snapshot_rows([CITY_TIME, PING])
    text = break_one(index.tool_text, lambda contract, *_: contract.get("inputSchema") == {})
    broken = [rows[0], {**rows[1], "contract": "no JSON"}]
    monkeypatch.setattr(index, "tool_text", text)
    members = {row["tool"]: row["text"] for row in index.build_texts(broken)}
    assert members[PING["name"]] == PING["name"]
    assert CITY_TIME["description"] in members[CITY_TIME["name"]]


def test_a_judgement_or_a_unit_that_fails_is_its_rows(ledger, monkeypatch):
    view = break_one(judging.make_view, lambda row, _: row is ROWS[0])
    monkeypatch.setattr(judging, "make_view", view)
    answer = JUDGEMENTS.frame(judging.judge(ROWS[:2], CONTRACTS, offline_llm(ledger), POLICY))
    by_id = {row["pair_id"]: row for row in answer.to_dicts()}
    lost, good = (by_id[row["pair_id"]] for row in ROWS[:2])
    assert (lost["status"], lost["error_kind"], lost["verdict"]) == ("failed", "internal", None)
    assert good["status"] == "ok"
    check(lost["hint"])
    policy = replace(SINGLES, pairs_per_tool=2)
    llm, units = offline_llm(ledger), planned(snapshot_rows([CITY_TIME, CONVERT]), policy)
    write = break_one(plan.write_single, lambda unit, *_: unit.own["tool"] == CONVERT["name"])
    monkeypatch.setattr(plan, "write_single", write)
    answer = PAIRS.frame(plan.compose_rows(units, llm, policy)).to_dicts()
    lost = [row for row in answer if row["tool"] == CONVERT["name"]]
    assert sorted(row["index"] for row in lost) == [0, 1]
    assert {(row["status"], row["error_kind"]) for row in lost} == {("failed", "internal")}
    check(lost[0]["hint"])
    assert {row["error_kind"] for row in answer if row["tool"] != CONVERT["name"]} == {None}
    assert {row["task"] for row in answer} <= set(TASKS)


def test_a_unit_that_cannot_be_planned_is_its_rows_and_moves_no_other(ledger, monkeypatch):
    rows, llm = snapshot_rows([CITY_TIME, CONVERT, READ_FILE]), offline_llm(ledger)
    units = planned(rows, ALL_TASKS, others(rows))
    good = {key: plan for key, plan in plan_units(units, llm, ALL_TASKS).items()
            if f"/{CONVERT['name']}#" not in key}  # fmt: skip
    link = break_one(writing_units.make_link, lambda of: of["name"] == CONVERT["name"])
    monkeypatch.setattr(writing_units, "make_link", link)
    now = planned(rows, ALL_TASKS, others(rows))
    plans = plan_units(now, llm, ALL_TASKS)
    assert {unit.task for unit in now if unit.problem} == {"sequential"}
    untouched = [key for key in good if not key.endswith("#sequential")]
    assert [plans[key] for key in untouched] == [good[key] for key in untouched]
    assert not [unit for unit in now if unit.problem and unit.own["tool"] != CONVERT["name"]]
    answer = PAIRS.frame(plan.compose_rows(now, llm, ALL_TASKS)).to_dicts()
    (lost,) = [row for row in answer if row["status"] == "failed"]
    key = ("tool", "task", "failed_step", "error_kind")
    assert [lost[name] for name in key] == [CONVERT["name"], "sequential", "plan", "internal"]
    check(lost["hint"])


def test_a_plan_without_a_digest_of_its_own_is_planned_all_the_same(ledger, monkeypatch):
    llm, units = offline_llm(ledger), planned(snapshot_rows([CITY_TIME, PING]))
    before = plan_units(units, llm, SINGLES)
    steps = break_one(writing_units.list_steps, lambda unit, _: unit.own["tool"] == PING["name"])
    monkeypatch.setattr(writing_units, "list_steps", steps)
    after = plan_units(units, llm, SINGLES)
    assert {key for key in before if after[key] != before[key]} == {"npm:demo/ping#single"}


def test_a_row_that_the_filters_fail_for_is_that_row(monkeypatch):
    rows = [{**ROWS[0], "index": 0, "pair_id": "p1:a"}, {**ROWS[1], "pair_id": "p1:b"}]
    rows = PAIRS.frame([{"index": 1, **{k: v for k, v in row.items() if k in PAIRS.columns}}
                        for row in rows]).to_dicts()  # fmt: skip
    alone = filters.filter_rows(rows[1:], CONTRACTS, embed, POLICY)
    judge = break_one(filters.dump_text, lambda flaws: flaws == [])
    monkeypatch.setattr(filters, "dump_text", judge)
    lost = filters.filter_rows(rows, CONTRACTS, embed, POLICY)
    assert [row["error_kind"] for row in lost] == ["internal", "internal"]
    monkeypatch.undo()
    text = break_one(filters.read_conversation, lambda row: row["pair_id"] == "p1:a")
    monkeypatch.setattr(filters, "read_conversation", text)
    first, second = PAIRS.frame(filters.filter_rows(rows, CONTRACTS, embed, POLICY)).to_dicts()
    assert (first["status"], first["failed_step"], first["verdict"]) == ("failed", "filter", None)
    check(first["hint"])
    assert second == PAIRS.frame(alone).to_dicts()[0]


def test_a_row_that_the_table_does_not_take_is_that_row():
    answer = {"server_id": "a", "tool": "b", "contract_digest": "c1:0", "task": "single",
            "plan_digest": "p", "status": "ok"}  # fmt: skip
    good = {**answer, "pair_id": "p1:a", "index": 0, "instruction": "what time is it"}
    odd = {**answer, "pair_id": "p1:b", "index": 1, "instruction": "\ud800"}
    first, second = plan._fit_rows([good, odd])
    assert (first["status"], first["instruction"]) == ("ok", good["instruction"])
    assert (second["error_kind"], second["failed_step"]) == ("internal", "table")


leaves = st.none() | st.integers() | st.text(max_size=4) | st.sampled_from(["object", "#/$defs/a"])
names = st.sampled_from(["name", "inputSchema", "properties", "required", "type", "enum", "$ref",
                         "$defs", "a", "anyOf", "allOf", "items", "outputSchema"])  # fmt: skip
values = json_values(leaves, names)


@examples(100)
@given(st.lists(values.map(json.dumps) | st.text(max_size=4), max_size=3))
def test_any_contracts_are_planned(texts):
    """One that is good is planned as it would be without the others, each has a unit of its own."""
    (good,) = snapshot_rows([CITY_TIME])
    odd = [{**good, "tool": f"t{at}", "contract": text, "contract_digest": f"c1:{at}"}
           for at, text in enumerate(texts)]  # fmt: skip
    units = planned([good, *odd], SINGLES)
    assert {unit.own["tool"] for unit in units} == {good["tool"], *(row["tool"] for row in odd)}
    everything = planned([good, *odd], ALL_TASKS, others([good, *odd]))
    assert not [unit for unit in everything if unit.own is good and unit.problem]
    llm = offline_llm(None)  # type: ignore[arg-type]
    plans = plan_units(everything, llm, ALL_TASKS)
    (alone,) = plan_units(planned([good], SINGLES), llm, SINGLES).values()
    assert plan_units(units, llm, SINGLES)[f"npm:demo/{good['tool']}#single"] == alone
    assert len(plans) == len(everything)


@examples(100)
@given(st.fixed_dictionaries(
    {name: st.none() | values.map(json.dumps) | st.text(max_size=4)
     for name in ("flaws", "calls", "messages", "offered", "instruction", "contract_digest")}
    | {"index": st.none() | st.integers(-3, 3)}
))  # fmt: skip
def test_any_row_passes_the_filters_or_fails_alone(columns):
    row = {"pair_id": "p1:odd", "server_id": "z", "tool": "z", "task": "single", "status": "ok",
           "verdict": "accept", "cosine": None, "twin_of": None, **columns}  # fmt: skip
    good = {**row, "pair_id": "p1:good", "server_id": "a", "index": 0, "flaws": "[]",
            "instruction": "a b", "calls": "[]", "messages": "[]", "offered": "[]"}  # fmt: skip

    kept, odd = filters.filter_rows([good, row], {}, embed, POLICY)
    assert (kept["status"], kept["twin_of"]) == ("ok", None)
    assert (odd["status"], odd.get("error_kind")) in (("ok", None), ("failed", "internal"))
    PAIRS.frame([{name: row[name] for name in row if name in PAIRS.columns} for row in (kept, odd)])


@cases("stage", "judge", "pairs")
def test_what_concerns_the_run_ends_it(ledger, monkeypatch, stage):
    llm, units = offline_llm(ledger), planned(snapshot_rows([PING]))
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(judging, "make_view", full)
    monkeypatch.setattr(plan, "write_single", full)
    how = {"judge": (ROWS[:1], CONTRACTS, llm, POLICY), "pairs": (units, llm, SINGLES)}[stage]
    with pytest.raises(OSError, match="No space left"):
        {"judge": judging.judge, "pairs": plan.compose_rows}[stage](*how)
