"""Whatever fails of one contract, pair or server in a way nobody foresaw is its row, with a digest
of the trace, and the others are as they would have been."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assets.contracts.history import snapshot as snapshots
from assets.contracts.history.snapshot import SNAPSHOTS, build_snapshot, list_malformed
from assets.contracts.quarantine import findings
from assets.contracts.quarantine.findings import scan_snapshot
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS, TASKS
from assets.synthesis.judging import judge as judging
from assets.synthesis.summaries import ask, summaries
from assets.synthesis.writing import compose
from assets.vectors import index
from tests.synthesis.contracts import CITY_TIME, CONVERT, PING, snapshot_rows
from tests.synthesis.judging.test_judge import CONTRACTS, POLICY, ROWS
from tests.synthesis.scripted import SINGLES, offline_llm, planned
from warehouse.ledger.ledger import Ledger

TRACE = "RuntimeError at tests/"


def break_one(function: Any, is_it: Any) -> Any:
    """The function, which raises for the one item that `is_it` knows by its arguments."""

    def broken(*args: Any, **more: Any) -> Any:
        if is_it(*args):
            raise RuntimeError("what a third party sent")
        return function(*args, **more)

    return broken


def check(hint: str) -> None:
    assert hint.startswith(TRACE)
    assert ", trace " in hint
    assert "third party" not in hint


def test_a_list_that_fails_keeps_the_last_contracts(ledger: Ledger, monkeypatch) -> None:
    def deployed(server: str, text: str) -> dict[str, Any]:
        tools = [{"name": "a", "description": text, "inputSchema": {"type": "object"}}]
        blob = ledger.blobs.put(json.dumps(tools).encode())
        return {"server_id": server, "marketplace": "m", "status": "ok", "recipe_digest": "r",
                "probed_at": 0.0, "tools_blob": blob}  # fmt: skip

    first = build_snapshot([], [deployed("one", "A."), deployed("two", "B.")], ledger.blobs, 0.0)
    now = [deployed("one", "C."), deployed("two", "D.")]
    read = break_one(snapshots.raw_tools, lambda row, _: row["server_id"] == "one")
    monkeypatch.setattr(snapshots, "raw_tools", read)
    rows = SNAPSHOTS.frame(build_snapshot(first, now, ledger.blobs, 0.0)).to_dicts()
    assert [json.loads(row["contract"])["description"] for row in rows] == ["A.", "D."]
    ((server, problem),) = [
        (one["server_id"], one["problem"]) for one in list_malformed(now, ledger.blobs)
    ]
    assert (server, problem.startswith(f"internal: {TRACE}")) == ("one", True)


def test_a_tool_whose_scan_fails_is_held(monkeypatch) -> None:
    rows = snapshot_rows([CITY_TIME, PING])
    for row in rows:
        row |= {"schema_problem": None, "contract": json.dumps(row["contract"])}
    scan = break_one(findings.scan_tool, lambda tool, *_: tool["name"] == PING["name"])
    with monkeypatch.context() as patched:
        patched.setattr(findings, "scan_tool", scan)
        first = scan_snapshot(rows, {}, {}, run_date="2026-01-01")
    held = [row for row in first.rows if row["rule"] == "not_scanned"]
    assert [(row["tool"], row["severity"]) for row in held] == [(PING["name"], "high")]
    check(held[0]["excerpt"])
    again = scan_snapshot(rows, {}, {}, scans=first.scans, run_date="2026-01-02")
    assert again.read == 1  # it alone: the next run reads it once more
    assert not [row for row in again.rows if row["rule"] == "not_scanned"]


def test_a_summary_that_fails_is_a_row(monkeypatch) -> None:
    rows = snapshot_rows([CITY_TIME, PING])
    rows[1] = {**rows[1], "server_id": "npm:other"}
    write = break_one(summaries.write_summary, lambda name, _: name == "other")
    monkeypatch.setattr(summaries, "write_summary", write)
    made, _ = summaries.make_summaries(rows, {}, None)
    told = {row["server_id"]: (row["status"], row["error_kind"]) for row in made}
    assert told == {rows[0]["server_id"]: ("ok", None), "npm:other": ("failed", "internal")}
    check(next(row["hint"] for row in made if row["status"] == "failed"))
    assert ask.make_row.__name__ == "make_row"


def test_a_contract_without_a_text_is_known_by_its_name(monkeypatch) -> None:
    rows = snapshot_rows([CITY_TIME, PING])
    text = break_one(index.tool_text, lambda contract, *_: contract.get("inputSchema") == {})
    broken = [rows[0], {**rows[1], "contract": "no JSON"}]
    monkeypatch.setattr(index, "tool_text", text)
    members = {row["tool"]: row["text"] for row in index.build_texts(broken)}
    assert members[PING["name"]] == PING["name"]
    assert CITY_TIME["description"] in members[CITY_TIME["name"]]


def test_a_judgement_that_fails_is_a_row(ledger: Ledger, monkeypatch) -> None:
    view = break_one(judging.make_view, lambda row, _: row is ROWS[0])
    monkeypatch.setattr(judging, "make_view", view)
    made = JUDGEMENTS.frame(judging.judge(ROWS[:2], CONTRACTS, offline_llm(ledger), POLICY))
    told = {row["pair_id"]: row for row in made.to_dicts()}
    lost, good = (told[row["pair_id"]] for row in ROWS[:2])
    assert (lost["status"], lost["error_kind"], lost["verdict"]) == ("failed", "internal", None)
    assert good["status"] == "ok"
    check(lost["hint"])


def test_a_unit_that_fails_is_its_rows(ledger: Ledger, monkeypatch) -> None:
    policy = replace(SINGLES, pairs_per_tool=2)
    rows = snapshot_rows([CITY_TIME, CONVERT])
    llm = offline_llm(ledger)
    units = planned(rows, policy)
    write = break_one(compose.write_single, lambda unit, *_: unit.own["tool"] == CONVERT["name"])
    monkeypatch.setattr(compose, "write_single", write)
    made = PAIRS.frame(compose.compose_rows(units, llm, policy)).to_dicts()
    lost = [row for row in made if row["tool"] == CONVERT["name"]]
    assert [(row["index"], row["status"], row["error_kind"]) for row in lost] == [
        (0, "failed", "internal"),
        (1, "failed", "internal"),
    ]
    check(lost[0]["hint"])
    assert {row["error_kind"] for row in made if row["tool"] != CONVERT["name"]} == {None}
    assert {row["task"] for row in made} <= set(TASKS)


@pytest.mark.parametrize("stage", ["judge", "pairs"])
def test_what_concerns_the_run_ends_it(ledger: Ledger, monkeypatch, stage: str) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    llm, units = offline_llm(ledger), planned(snapshot_rows([PING]))
    monkeypatch.setattr(judging, "make_view", full)
    monkeypatch.setattr(compose, "write_single", full)
    run = {
        "judge": lambda: judging.judge(ROWS[:1], CONTRACTS, llm, POLICY),
        "pairs": lambda: compose.compose_rows(units, llm, SINGLES),
    }[stage]
    with pytest.raises(OSError, match="No space left"):
        run()
