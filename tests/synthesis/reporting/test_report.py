"""What the pages of pairs and judgements say, and that nothing in them is markup."""

import json
from typing import Any

from assets.synthesis.pair_report import (
    count_reasons,
    report_judgements,
    report_pairs,
    tabulate_trials,
)


def pair(number: int, **more: Any) -> dict[str, Any]:
    call = {"server_id": "npm:a", "tool": "look", "contract_digest": "c1:a", "arguments": {"q": 1}}
    return {
        "pair_id": f"p1:{number}",
        "task": "single",
        "kind": "direct",
        "tool": "look",
        "instruction": "Where is it?",
        "calls": json.dumps([call]),
        "status": "ok",
        "failed_step": None,
        "error_kind": None,
        "verdict": "accept",
        "twin_of": None,
        "flaws": "[]",
        "provider": "offline",
        **more,
    }


def flaw(kind: str, certain: bool = True) -> dict[str, Any]:
    return {"kind": kind, "path": "", "reason": "", "certain": certain}


def test_each_pair_that_goes_no_further_is_counted_once_per_reason() -> None:
    rows = [
        pair(1),
        pair(2, verdict="reject", flaws=json.dumps([flaw("wrong_type"), flaw("wrong_type")])),
        pair(3, verdict="reject", flaws=json.dumps([flaw("wrong_type"), flaw("guess", False)])),
        pair(4, twin_of="p1:1"),
        pair(5, status="failed", failed_step="revise", error_kind="timeout"),
        pair(6, verdict="unsure", flaws=json.dumps([flaw("ungrounded_value", False)])),
    ]
    assert count_reasons(rows) == [
        ("wrong_type", 2),
        ("repeats another pair", 1),
        ("revise failed: timeout", 1),
    ]
    figures = report_pairs(rows)
    assert (figures["written"], figures["to_the_judge"], figures["failed"]) == (5, 2, 1)
    assert "| single | 6 | 1 | 1 | 2 | 1 | 1 |" in figures["by_task"].replace("&#95;", "_")


def test_what_a_model_wrote_is_text_on_the_page() -> None:
    evil = "[x](javascript:alert(1)) <img src=x> | `a`"
    figures = report_pairs([pair(1, instruction=evil)])
    assert not set("<[`") & set(figures["latest"].split("\n", 2)[2])
    rows = [
        {"pair_id": "p1:1", "tool": "look", "verdict": "reject", "score": 2.0, "status": "ok",
         "judge": "offline:rules", "reasons": evil}
    ]  # fmt: skip
    figures = report_judgements(rows, [pair(1, instruction=evil)])
    assert not set("<[`") & set(figures["rejected_pairs"].split("\n", 2)[2])
    assert figures["rejected"] == 1
    assert figures["accepted_of_written"].startswith("0 of 1 [0.00, ")


def test_an_empty_run_has_a_page_too() -> None:
    assert report_pairs([])["provider"] == "none"
    figures = report_judgements([], [])
    assert figures["accepted_of_written"] == "none written"
    assert "mean_score" not in figures
    assert tabulate_trials([]) == "none"
