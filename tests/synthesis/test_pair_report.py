"""What the pages of pairs and judgements say, and that nothing in them is markup."""

import json
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.pair_report import (
    ALL,
    SPEND,
    TOTAL,
    audit_cost,
    count_accepted_pairs,
    count_reasons,
    make_spend_rows,
    report_judgements,
    report_pairs,
    tabulate_trials,
)
from assets.synthesis.tables import JUDGEMENTS


def pair(number: int, **more: Any) -> dict[str, Any]:
    call = {"server_id": "npm:a", "tool": "look", "contract_digest": "c1:a", "arguments": {"q": 1}}
    return {
        "pair_id": f"p1:{number}", "task": "single", "kind": "direct", "tool": "look",
        "instruction": "Where is it?", "calls": json.dumps([call]), "status": "ok",
        "failed_step": None, "error_kind": None, "verdict": "accept", "twin_of": None,
        "flaws": "[]", "provider": "offline", **more,
    }  # fmt: skip


def flaw(kind: str, certain: bool = True) -> dict[str, Any]:
    return {"kind": kind, "path": "", "reason": "", "certain": certain}


def test_each_pair_that_goes_no_further_is_counted_once_per_reason_and_an_empty_run_has_a_page():
    rows = [
        pair(1),
        pair(2, verdict="reject", flaws=json.dumps([flaw("wrong_type"), flaw("wrong_type")])),
        pair(3, verdict="reject", flaws=json.dumps([flaw("wrong_type"), flaw("guess", False)])),
        pair(4, twin_of="p1:1"),
        pair(5, status="failed", failed_step="revise", error_kind="timeout"),
        pair(6, verdict="unsure", flaws=json.dumps([flaw("ungrounded_value", False)])),
    ]
    reasons = {"wrong_type": 2, "repeats another pair": 1, "revise failed: timeout": 1}
    assert count_reasons(rows) == list(reasons.items())
    figures = report_pairs(rows)
    assert (figures["written"], figures["to_the_judge"], figures["failed"]) == (5, 2, 1)
    assert "| single | 6 | 1 | 1 | 2 | 1 | 1 |" in figures["by_task"].replace("&#95;", "_")
    assert report_pairs([])["provider"] == "none"
    figures = report_judgements([], [])
    assert figures["accepted_of_written"] == "none written"
    assert "mean_score" not in figures
    assert tabulate_trials([]) == "none"


def test_what_a_model_wrote_is_text_on_the_page():
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


def cost(**columns: Any) -> dict[str, Any]:
    return {"stage": "llm:generator", "partition": "registry", "model": "m", "status": "done",
            "effects": 1, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0,
            **columns}  # fmt: skip


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(row["marketplace"], row["stage"], row["model"]): row for row in rows}


def test_a_stage_has_calls_and_dollars_per_accepted_pair_and_a_share_of_what_all_paid():
    costs = [
        cost(effects=4, prompt_tokens=300, completion_tokens=100, usd=0.2),
        cost(status="failed", effects=2),
        cost(status="unknown", effects=1),
        cost(stage="llm:judge", effects=3, usd=0.1),
    ]
    rows = by_key(make_spend_rows(costs, {"registry": 2}))
    answer = rows["registry", "generator", "m"]
    assert [answer[name] for name in ("calls", "failed", "unknown", "tokens")] == [4, 2, 1, 400]
    assert (answer["usd_per_accepted_pair"], answer["tokens_per_accepted_pair"]) == (0.1, 200.0)
    assert rows["registry", "judge", "m"]["usd_per_accepted_pair"] == 0.05
    assert rows["registry", TOTAL, ""]["usd"] == 0.3
    rows = by_key(make_spend_rows([cost(usd=1.0)], {}))
    assert rows["registry", TOTAL, ""]["usd_per_accepted_pair"] is None
    assert by_key(make_spend_rows([], {}))[ALL, TOTAL, ""]["usd"] == 0.0
    costs = [cost(usd=1.0), cost(partition="_", stage="llm:judge", usd=0.8)]
    rows = by_key(make_spend_rows(costs, {"registry": 6, "glama": 2}, distinct=5))
    assert rows["registry", TOTAL, ""]["shared_usd"] == 0.6
    assert rows["registry", TOTAL, ""]["usd_per_accepted_pair"] == round(1.6 / 6, 9)
    assert rows["glama", TOTAL, ""]["usd_per_accepted_pair"] == 0.1  # it reuses what others paid
    assert rows[ALL, TOTAL, ""]["usd_per_accepted_pair"] == 0.36  # of 5 different pairs


names = st.sampled_from(["registry", "glama", "_"])


@given(
    st.lists(
        st.builds(
            cost,
            partition=names,
            stage=st.sampled_from(["llm:generator", "llm:judge", "train:caller"]),
            model=st.sampled_from(["a", "b"]),
            status=st.sampled_from(["done", "failed", "unknown", "started"]),
            effects=st.integers(1, 9),
            usd=st.integers(0, 10_000).map(lambda cents: cents / 10_000),
            prompt_tokens=st.integers(0, 1000),
        )
    ),
    st.dictionaries(st.sampled_from(["registry", "glama"]), st.integers(0, 50)),
)
def test_totals_add_up_and_the_rows_are_a_table(costs, accepted):
    rows = make_spend_rows(costs, accepted)
    frame = SPEND.frame(rows)
    stages = [row for row in rows if row["stage"] != TOTAL]
    whole = by_key(rows)[ALL, TOTAL, ""]
    for name in ("usd", "tokens", "calls", "failed"):
        assert round(sum(row[name] for row in stages) - whole[name], 6) == 0
    assert len(frame) == len(rows)
    if sum(accepted.values()):
        shares = [row["shared_usd"] for row in rows if row["shared_usd"] is not None]
        lost = [row["usd"] for row in stages if row["marketplace"] == "_"]
        assert round(sum(shares) - sum(lost), 6) == 0


def test_accepted_pairs_are_counted_once_in_all_and_one_that_costs_much_more_is_refused():
    listed = [("a", "registry", "accept"), ("b", "registry", "reject"), ("c", "glama", "accept")]
    rows = [{"pair_id": p, "marketplace": m, "verdict": v} for p, m, v in listed]
    other = [{"pair_id": "a", "marketplace": "glama", "verdict": "accept"}]
    frame = pl.concat([JUDGEMENTS.frame(rows), JUDGEMENTS.frame(other)])
    assert count_accepted_pairs(frame) == ({"glama": 2, "registry": 1}, 2)
    then, dear = make_spend_rows([cost(usd=1.0)], {"registry": 100}), {"registry": 20}
    assert audit_cost(make_spend_rows([cost(usd=2.0)], {"registry": 100}), then).passed
    refused = audit_cost(make_spend_rows([cost(usd=1.0)], dear), then)
    assert not refused.passed
    assert "0.050000 USD, 0.010000 before" in refused.observed
    assert audit_cost(make_spend_rows([cost(usd=1.0)], {}), then).passed
    assert audit_cost(make_spend_rows([cost(usd=1.0)], dear), []).passed
    cents = make_spend_rows([cost(usd=0.00001)], {"registry": 1})
    assert audit_cost(make_spend_rows([cost(usd=0.0001)], {"registry": 1}), cents).passed
