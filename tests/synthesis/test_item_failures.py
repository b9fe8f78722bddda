"""Whatever fails of one contract, pair or server in a way nobody foresaw is its row, with a digest
of the trace, and the others are as they would have been."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts import findings
from assets.contracts import snapshot as snapshots
from assets.contracts.findings import scan_snapshot
from assets.contracts.snapshot import SNAPSHOTS, build_snapshot, list_malformed
from assets.synthesis import summaries
from assets.synthesis.judging import judge as judging
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS
from assets.synthesis.verify import filters
from assets.synthesis.writing import plan
from assets.synthesis.writing import units as writing_units
from assets.synthesis.writing.units import plan_units
from assets.vectors import index
from tests.support.cases import cases
from tests.support.examples import examples
from tests.synthesis.contracts import CITY_TIME, CONVERT, PING, READ_FILE, snapshot_rows
from tests.synthesis.judging.test_judge import CONTRACTS, POLICY, ROWS
from tests.synthesis.scripted import ALL_TASKS, SINGLES, offline_llm, others, planned

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
    ((server, problem),) = [
        (item["server_id"], item["problem"]) for item in list_malformed(now, ledger.blobs)
    ]
    assert (server, problem.startswith(f"internal: {TRACE}")) == ("one", True)


def test_a_tool_whose_scan_fails_is_held(monkeypatch):
    rows = snapshot_rows([CITY_TIME, PING])
    for row in rows:
        row |= {"schema_problem": None, "contract": json.dumps(row["contract"])}
    scan = break_one(findings.scan_tool, lambda tool, *_: tool["name"] == PING["name"])
    with monkeypatch.context() as patched:
        patched.setattr(findings, "scan_tool", scan)
        first = scan_snapshot(rows, {}, {}, run_date="2026-01-01")
    lines = [row for row in first.rows if row["rule"] == "not_scanned"]
    assert [(row["tool"], row["severity"]) for row in lines] == [(PING["name"], "high")]
    check(lines[0]["excerpt"])
    again = scan_snapshot(rows, {}, {}, scans=first.scans, run_date="2026-01-02")
    assert again.read == 1  # it alone: the next run reads it once more
    assert not [row for row in again.rows if row["rule"] == "not_scanned"]


def test_a_summary_that_fails_is_a_row(monkeypatch):
    rows = snapshot_rows([CITY_TIME, PING])
    rows[1] = {**rows[1], "server_id": "npm:other"}
    write = break_one(summaries.write_summary, lambda name, _: name == "other")
    monkeypatch.setattr(summaries, "write_summary", write)
    answer, _ = summaries.make_summaries(rows, {}, None)
    outcomes = {row["server_id"]: (row["status"], row["error_kind"]) for row in answer}
    assert outcomes == {rows[0]["server_id"]: ("ok", None), "npm:other": ("failed", "internal")}
    check(next(row["hint"] for row in answer if row["status"] == "failed"))
    assert summaries.make_row.__name__ == "make_row"


def test_a_contract_without_a_text_is_known_by_its_name(monkeypatch):
    rows = snapshot_rows([CITY_TIME, PING])
    text = break_one(index.tool_text, lambda contract, *_: contract.get("inputSchema") == {})
    broken = [rows[0], {**rows[1], "contract": "no JSON"}]
    monkeypatch.setattr(index, "tool_text", text)
    members = {row["tool"]: row["text"] for row in index.build_texts(broken)}
    assert members[PING["name"]] == PING["name"]
    assert CITY_TIME["description"] in members[CITY_TIME["name"]]


def test_a_judgement_that_fails_is_a_row(ledger, monkeypatch):
    view = break_one(judging.make_view, lambda row, _: row is ROWS[0])
    monkeypatch.setattr(judging, "make_view", view)
    answer = JUDGEMENTS.frame(judging.judge(ROWS[:2], CONTRACTS, offline_llm(ledger), POLICY))
    by_id = {row["pair_id"]: row for row in answer.to_dicts()}
    lost, good = (by_id[row["pair_id"]] for row in ROWS[:2])
    assert (lost["status"], lost["error_kind"], lost["verdict"]) == ("failed", "internal", None)
    assert good["status"] == "ok"
    check(lost["hint"])


def test_a_unit_that_fails_is_its_rows(ledger, monkeypatch):
    policy = replace(SINGLES, pairs_per_tool=2)
    rows = snapshot_rows([CITY_TIME, CONVERT])
    llm = offline_llm(ledger)
    units = planned(rows, policy)
    write = break_one(plan.write_single, lambda unit, *_: unit.own["tool"] == CONVERT["name"])
    monkeypatch.setattr(plan, "write_single", write)
    answer = PAIRS.frame(plan.compose_rows(units, llm, policy)).to_dicts()
    lost = [row for row in answer if row["tool"] == CONVERT["name"]]
    assert {(row["index"], row["status"], row["error_kind"]) for row in lost} == {
        (0, "failed", "internal"),
        (1, "failed", "internal"),
    }
    assert len(lost) == 2
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
values = st.recursive(
    leaves, lambda of: st.lists(of, max_size=2) | st.dictionaries(names, of, max_size=3)
)


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
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    llm, units = offline_llm(ledger), planned(snapshot_rows([PING]))
    monkeypatch.setattr(judging, "make_view", full)
    monkeypatch.setattr(plan, "write_single", full)
    run = {
        "judge": lambda: judging.judge(ROWS[:1], CONTRACTS, llm, POLICY),
        "pairs": lambda: plan.compose_rows(units, llm, SINGLES),
    }[stage]
    with pytest.raises(OSError, match="No space left"):
        run()
