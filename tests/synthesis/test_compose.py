"""Pairs end to end: offline, and against a real endpoint that misbehaves."""

import json
from typing import Any

import pytest

from assets.synthesis.compose import PAIRS, compose, wanted
from assets.synthesis.judge import (
    JUDGEMENTS,
    judge,
    judge_name,
    offline_provider,
    wanted_judgements,
)
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.contracts import ALL, CITY_TIME, READ_FILE, snapshot_rows
from warehouse.effects.endpoint import Endpoint
from warehouse.effects.ledger import Ledger
from warehouse.effects.llm import LLM, LLMError, Role

ROWS = snapshot_rows(ALL)
CONTRACTS = {row["contract_digest"]: row["contract"] for row in ROWS}


def model(ledger: Ledger, url: str, **settings: Any) -> LLM:
    shared = {"model": "m-1", "base_url": url, "api_key": "k", "attempts": 2, "timeout_s": 5.0}
    roles = [Role(name, **{**shared, **settings}) for name in ("generator", "caller", "judge")]
    return LLM(roles, ledger, endpoint=Endpoint(backoff_s=0.01))


def scripted(body: dict[str, Any], _number: int) -> Say:
    """A model that reads which of the three prompts it is given."""
    system = body["messages"][0]["content"]
    if system.startswith("You write requests"):
        made = [
            {"kind": "direct", "instruction": "What time is it in Tokyo?", "values": {}},
            {
                "kind": "detailed",
                "instruction": "I call Osaka in an hour; what's the time in Tokyo?",
            },
            {"kind": "odd", "instruction": "Sure! Here is a request about the time in Tokyo."},
        ]
        return Say("```json\n" + json.dumps({"requests": made}) + "\n```")
    if system.startswith("You turn"):
        return Say('{"arguments": {"timezone": "Asia/Tokyo"}}')
    scores = dict.fromkeys(
        ("clarity", "specificity", "relevance", "completeness", "correctness", "realism"), 8
    )
    low = "Osaka" in body["messages"][1]["content"]
    return Say(json.dumps({"reasons": "fine", **scores, "score": 4 if low else 8}))


def test_offline_pairs_are_whole_rows_with_receipts(offline: LLM) -> None:
    rows = compose(ROWS, offline, k=3, seed=7)
    frame = PAIRS.frame(rows)
    assert len(frame) == 3 * len(ROWS)
    assert set(frame["status"]) == {"ok"}
    assert set(frame["provider"]) == {"offline"}
    assert frame["model"].str.starts_with("offline-").all()
    assert frame["usd"].sum() == 0.0
    assert set(frame["license"]) == {"MIT"}
    assert frame["prompt_digest"].n_unique() == 1
    assert (frame["verdict"] == "accept").sum() >= 0.8 * len(frame)


def test_the_second_run_asks_nobody_and_makes_the_same_rows(ledger: Ledger, offline: LLM) -> None:
    first = compose(ROWS, offline, k=3, seed=7)
    before = ledger.counts()
    again = LLM(offline.roles.values(), ledger, offline=offline_provider())
    assert compose(ROWS, again, k=3, seed=7) == first
    assert ledger.counts() == before
    assert again.counts["asked"] == 0


def test_a_pair_keeps_its_id_on_another_marketplace(offline: LLM) -> None:
    here = compose(ROWS[:1], offline)
    there = compose([{**ROWS[0], "marketplace": "mcpso"}], offline)
    assert [row["pair_id"] for row in here] == [row["pair_id"] for row in there]


def test_the_plan_changes_with_what_can_change_the_pairs(offline: LLM, ledger: Ledger) -> None:
    base = wanted(ROWS, offline, k=3, seed=7)
    assert set(base) == {f"npm:demo/{row['tool']}" for row in ROWS}
    assert base == wanted([{**row, "marketplace": "x"} for row in ROWS], offline, k=3, seed=7)
    assert not set(base.values()) & set(wanted(ROWS, offline, k=4, seed=7).values())
    assert not set(base.values()) & set(wanted(ROWS, offline, k=3, seed=8).values())
    slower = LLM([Role("generator", timeout_s=1), Role("caller", temperature=0.0)], ledger,
                 offline=offline_provider())  # fmt: skip
    assert base == wanted(ROWS, slower, k=3, seed=7)
    assert all(row["plan_digest"] in base.values() for row in compose(ROWS, offline, k=3, seed=7))


def test_the_offline_judge_says_that_it_is_rules(offline: LLM) -> None:
    pairs = compose(ROWS, offline, k=3, seed=7)
    rows = judge(pairs, CONTRACTS, offline)
    frame = JUDGEMENTS.frame(rows)
    assert set(frame["judge"]) == {"offline:rules"}
    assert set(frame["status"]) == {"ok"}
    assert {row["pair_id"] for row in rows} == set(wanted_judgements(pairs, offline))
    accepted = frame.filter(frame["verdict"] == "accept")
    assert len(accepted) >= 0.8 * len(frame)
    assert accepted["score"].min() >= 6


def test_a_model_writes_calls_and_judges_through_one_endpoint(ledger: Ledger) -> None:
    with openai_endpoint(scripted) as endpoint:
        llm = model(ledger, endpoint.url, usd_in=1.0, usd_out=1.0)
        pairs = compose(snapshot_rows([CITY_TIME]), llm, k=3)
        rows = judge(pairs, CONTRACTS, llm)
        sent = len(endpoint.requests)
        assert compose(snapshot_rows([CITY_TIME]), llm, k=3) == pairs
        assert len(endpoint.requests) == sent
    assert [row["verdict"] for row in pairs] == ["accept", "accept", "reject"]
    assert json.loads(pairs[0]["arguments"]) == {"timezone": "Asia/Tokyo"}
    assert pairs[0]["provider"] == endpoint.url.split("/")[2]
    assert all(row["usd"] > 0 and row["prompt_tokens"] > 0 for row in pairs)
    assert judge_name(llm) == "model:m-1"
    assert [row["verdict"] for row in rows] == ["accept", "reject"]
    assert sent == 1 + 3 + 2


@pytest.mark.parametrize(
    ("say", "kind"),
    [
        (Say(""), "empty"),
        (Say("I'd rather not."), "non_json"),
        (Say('{"requests": []}'), "wrong_shape"),
        (Say(None, refusal="No."), "refused"),
        (Say('{"requests": [{"instr', finish="length"), "truncated"),
        (Say("busy", status=429), "rate_limited"),
        (Say("oops", status=500), "server_error"),
        (Say("no key", status=401), "auth"),
    ],
)
def test_what_a_model_does_not_deliver_is_a_row_that_says_so(
    ledger: Ledger, say: Say, kind: str
) -> None:
    with openai_endpoint([say]) as endpoint:
        rows = compose(snapshot_rows([CITY_TIME]), model(ledger, endpoint.url), k=2)
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert {row["error_kind"] for row in rows} == {kind}
    assert all(row["hint"] for row in rows)
    PAIRS.frame(rows)


def test_too_few_requests_and_a_bad_call_are_rows_of_their_own(ledger: Ledger) -> None:
    def script(body: dict[str, Any], number: int) -> Say:
        if "You write requests" in body["messages"][0]["content"]:
            return Say('{"requests": [{"instruction": "What time is it in Oslo?"}]}')
        return Say("no idea")

    with openai_endpoint(script) as endpoint:
        rows = compose(snapshot_rows([CITY_TIME]), model(ledger, endpoint.url), k=2)
    assert [row["error_kind"] for row in rows] == ["non_json", "too_few"]
    assert rows[0]["instruction"] == "What time is it in Oslo?"


def test_a_budget_of_zero_fails_every_row_and_sends_nothing(ledger: Ledger) -> None:
    ledger.set_budget("usd", 0.0)
    with openai_endpoint(scripted) as endpoint:
        rows = compose(ROWS, model(ledger, endpoint.url, usd_in=1.0, usd_out=1.0), k=2)
        assert endpoint.requests == []
        ledger.set_budget("usd", 1.0)
        more = compose(ROWS, model(ledger, endpoint.url, usd_in=1.0, usd_out=1.0), k=2)
    assert {row["error_kind"] for row in rows} == {"budget"}
    assert {row["status"] for row in more} == {"ok"}


def test_a_tool_without_a_usable_contract_does_not_stop_the_others(offline: LLM) -> None:
    broken = {**snapshot_rows([READ_FILE])[0], "contract": "{not json", "tool": "broken"}
    rows = compose([broken, *snapshot_rows([CITY_TIME])], offline, k=2)
    assert [row.get("error_kind") for row in rows] == ["bad_contract", "bad_contract", None, None]


def test_a_missing_role_stops_at_once_and_names_itself(ledger: Ledger) -> None:
    llm = LLM([Role("generator")], ledger, offline=offline_provider())
    with pytest.raises(LLMError, match="caller"):
        compose(ROWS[:1], llm)


def test_a_pair_whose_contract_is_gone_is_not_judged_blindly(offline: LLM) -> None:
    (row, *_) = judge(compose(ROWS[:1], offline, k=1), {}, offline)
    assert (row["status"], row["error_kind"]) == ("failed", "no_contract")
