"""Pairs end to end: offline, and against a real endpoint that misbehaves."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from assets.synthesis.judging.judge import make_offline_provider
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import LOOKALIKE, PAIRS, SINGLE, TASKS, dump_text
from assets.synthesis.writing.plan import compose_rows
from assets.synthesis.writing.profiles import is_evolved
from assets.synthesis.writing.units import plan_units
from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.contracts import CITY_TIME, CONVERT, PING, READ_FILE, snapshot_rows
from tests.synthesis.scripted import (
    ALL_TASKS,
    MARKET,
    ONE,
    SINGLES,
    asked_of,
    data_of,
    model_llm,
    offline_llm,
    only,
    others,
    planned,
    scripted,
    write_one,
)
from tests.synthesis.writing.test_plan import edit
from warehouse.llm.client import LLM, LLMError, Role

ROWS = snapshot_rows(MARKET)
CLOCK = snapshot_rows([CITY_TIME])
TWO = replace(SINGLES, pairs_per_tool=2)


def times(*towns: str) -> Any:
    """A generator that asks for the time in these towns."""
    return lambda *_: {
        "requests": [
            {"instruction": f"What time is it in {town}?", "values": {"timezone": f"Europe/{town}"}}
            for town in towns
        ]
    }


def town_of(_: Any, data: dict[str, str]) -> Any:
    return {"arguments": {"timezone": f"Europe/{data['request'].split()[-1].strip('?.')}"}}


def test_offline_pairs_are_whole_rows_with_receipts(offline):
    rows = compose_rows(planned(ROWS), offline, SINGLES)
    frame = PAIRS.frame(rows)
    assert len(frame) == SINGLES.pairs_per_tool * len(ROWS)
    facts = frame.select("status", "provider", "usd", "license", "task").unique().rows()
    assert facts == [("ok", "offline", 0.0, "MIT", SINGLE)]
    assert frame["model"].str.starts_with("offline-").all()
    assert (frame["verdict"] == "accept").sum() >= 0.8 * len(frame)
    for row in rows:
        assert json.loads(row["contracts"]) == [row["contract_digest"]]
        assert json.loads(row["offered"]) == [row["contract_digest"]]
        assert set(json.loads(row["prompts"])) >= {"generate", "call"}
        assert {"persona", "tone", "language", "difficulty"} == set(json.loads(row["profile"]))
        assert json.loads(row["steps"])[0]["step"] == "generate"


def test_the_second_run_asks_nobody_and_makes_the_same_rows(ledger, offline):
    answer = planned(ROWS, ALL_TASKS, others(ROWS))
    first = compose_rows(answer, offline, ALL_TASKS)
    before = ledger.counts()
    again = offline_llm(ledger)
    assert compose_rows(answer, again, ALL_TASKS) == first
    assert ledger.counts() == before
    assert again.counts["asked"] == 0
    assert {row["task"] for row in first} == set(TASKS)


def test_ids_and_digests_are_the_same_on_another_marketplace(offline):
    here = compose_rows(planned(ROWS[:1]), offline, SINGLES)
    there = compose_rows(planned([{**ROWS[0], "marketplace": "mcpso"}]), offline, SINGLES)
    assert [row["pair_id"] for row in here] == [row["pair_id"] for row in there]
    answer = planned(ROWS, ALL_TASKS, others(ROWS))
    want = plan_units(answer, offline, ALL_TASKS)
    rows = compose_rows(answer, offline, ALL_TASKS)
    assert {f"{r['server_id']}/{r['tool']}#{r['task']}": r["plan_digest"] for r in rows} == want
    elsewhere = [{**row, "marketplace": "x"} for row in ROWS]
    assert plan_units(planned(elsewhere, ALL_TASKS, others(elsewhere)), offline, ALL_TASKS) == want


def test_what_requests_cost_is_divided_over_their_rows(ledger):
    """Three rows share one request of the generator: their receipts add up to what was paid."""
    script = scripted(generate=times("Oslo", "Bern", "Rome"), call=town_of)
    policy = replace(SINGLES, evolve_share=0.0)
    with openai_endpoint(script) as endpoint:
        llm = model_llm(ledger, endpoint.url, usd_in=1.0, usd_out=3.0)
        rows = compose_rows(planned(CLOCK), llm, policy)
        assert len(endpoint.requests) == 1 + 3
        again = model_llm(ledger, endpoint.url, usd_in=1.0, usd_out=3.0)
        assert compose_rows(planned(CLOCK), again, policy) == rows
        assert len(endpoint.requests) == 1 + 3
    assert [row["verdict"] for row in rows] == ["accept"] * 3
    assert sum(row["usd"] for row in rows) == pytest.approx(llm.usd, abs=1e-8)
    used = ledger.costs()
    assert sum(row["prompt_tokens"] for row in rows) == sum(c["prompt_tokens"] for c in used)
    assert json.loads(rows[0]["arguments"]) == {"timezone": "Europe/Oslo"}
    assert rows[0]["provider"] == endpoint.url.split("/")[2]
    for row in rows:
        steps = json.loads(row["steps"])
        assert row["usd"] == pytest.approx(sum(step["usd"] for step in steps), abs=1e-8)
        assert {(step["step"], step["role"]) for step in steps} == {
            ("generate", "generator"), ("call", "caller"),
        }  # fmt: skip


@cases(
    "say, kind",
    (Say(""), "empty"),
    (Say("I'd rather not."), "non_json"),
    (Say('{"requests": []}'), "wrong_shape"),
    (Say(None, refusal="No."), "refused"),
    (Say('{"requests": [{"instr', finish="length"), "truncated"),
    (Say(json.dumps({"requests": [{"instruction": "x" * 1_000_000}]})), "wrong_shape"),
    (Say("busy", status=429), "rate_limited"),
    (Say("oops", status=500), "server_error"),
    (Say("no key", status=401), "auth"),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_model_does_not_deliver_is_a_row_that_says_so(ledger, say, kind):
    with openai_endpoint([say]) as endpoint:
        rows = compose_rows(planned(CLOCK, TWO), model_llm(ledger, endpoint.url), TWO)
    assert [(row["status"], row["failed_step"]) for row in rows] == [("failed", "generate")] * 2
    assert {row["error_kind"] for row in rows} == {kind}
    assert all(row["hint"] for row in rows)
    PAIRS.frame(rows)


def test_too_few_requests_and_a_bad_call_are_rows_of_their_own(ledger):
    script = scripted(generate=times("Oslo"), call=lambda *_: "no idea")
    with openai_endpoint(script) as endpoint:
        rows = compose_rows(planned(CLOCK, TWO), model_llm(ledger, endpoint.url), TWO)
        assert json.loads(data_of(endpoint.requests[0])["tool"]) == CLOCK[0]["contract"]
    failures = [(row["failed_step"], row["error_kind"]) for row in rows]
    assert failures == [("call", "non_json"), ("generate", "too_few")]
    assert rows[0]["instruction"] == "What time is it in Oslo?"
    assert "1 requests of 2" in rows[1]["hint"]


def test_a_budget_of_zero_fails_every_row_sends_nothing_and_is_resumed(ledger):
    answer = planned(ROWS, ALL_TASKS, others(ROWS))
    ledger.set_budget("usd", 0.0)
    with openai_endpoint(scripted()) as endpoint:
        llm = model_llm(ledger, endpoint.url, usd_in=1.0, usd_out=1.0)
        rows = compose_rows(answer, llm, ALL_TASKS)
        assert endpoint.requests == []
        ledger.set_budget("usd", 100.0)
        again = model_llm(ledger, endpoint.url, usd_in=1.0, usd_out=1.0)
        more = compose_rows(answer, again, ALL_TASKS)
    assert {row["error_kind"] for row in rows} == {"budget"}
    assert {row["task"] for row in rows} == set(TASKS)
    assert Counter(row["status"] for row in more)["ok"] >= 0.8 * len(more)
    assert not [row for row in more if row["error_kind"] == "budget"]


def test_a_tool_without_a_usable_contract_does_not_stop_the_others(offline):
    broken = {**snapshot_rows([READ_FILE])[0], "contract": "{not json", "tool": "broken"}
    policy = replace(ALL_TASKS, pairs_per_tool=2)
    rows = compose_rows(planned([broken, *CLOCK], policy), offline, policy)
    bad = [row for row in rows if row["tool"] == "broken"]
    failures = [(row["error_kind"], row["failed_step"]) for row in bad]
    assert failures == [("bad_contract", "read")] * 2
    assert all(row["status"] == "ok" for row in rows if row["tool"] != "broken")


def test_a_missing_role_stops_at_once_and_names_itself(ledger):
    llm = LLM([Role("generator")], ledger, offline=make_offline_provider())
    with pytest.raises(LLMError, match="caller"):
        compose_rows(planned(ROWS[:1]), llm, SINGLES)


FAILED = ("failed", "revise")


def test_a_request_that_lacks_a_required_value_goes_to_the_reviser(ledger):
    prompts: list[dict[str, str]] = []

    def revise(_: Any, data: dict[str, str]) -> Any:
        prompts.append(data)
        return {"instruction": "What time is it in Oslo?", "values": {"timezone": "Europe/Oslo"}}

    vague = {"requests": [{"instruction": "How late is it over there?"}]}
    row, _ = write_one(ledger, CLOCK, generate=lambda *_: vague, revise=revise, call=town_of)
    assert (row["status"], row["verdict"]) == ("ok", "accept")
    assert row["instruction"] == "What time is it in Oslo?"
    assert [item["absent parameters"] for item in prompts] == ["timezone"]
    assert set(json.loads(prompts[0]["world"])) == {"files", "ids", "places", "people", "dates"}
    assert [step["step"] for step in json.loads(row["steps"])] == ["generate", "revise", "call"]


def test_a_value_nobody_tells_is_left_to_the_caller_and_the_rules(ledger):
    """The generator and the reviser keep their values to themselves; the text holds it."""
    answer = {"instruction": "What time is it in Oslo?"}
    answers = {"generate": lambda *_: {"requests": [answer]}, "revise": lambda *_: answer}
    row, _ = write_one(ledger, CLOCK, **answers, call=town_of)
    assert (row["status"], row["verdict"]) == ("ok", "accept")


def test_a_reviser_that_leaves_the_value_out_fails_the_row_and_nobody_is_asked_on(ledger):
    same = {"instruction": "How late is it over there?", "values": {"timezone": "Europe/Oslo"}}
    answers = {"generate": lambda *_: {"requests": [same]}, "revise": lambda *_: same}
    row, asked = write_one(ledger, CLOCK, **answers)
    assert asked == ["generate", "revise"]
    assert (row["status"], row["failed_step"], row["error_kind"]) == (*FAILED, "not_stated")
    assert "timezone" in row["hint"]


EVOLVED = replace(ONE, evolve_share=1.0, evolve_depth=3)


def test_each_step_of_evolution_takes_another_direction(ledger):
    request: list[str] = []

    def evolve(body: Any, data: dict[str, str]) -> Any:
        request.append(body["messages"][1]["content"].split("The direction: ")[1])
        text = f"I have a call at {len(request)}. {data['request']}"
        return {"instruction": text, "values": json.loads(data["values"])}

    row, _ = write_one(ledger, CLOCK, EVOLVED, generate=times("Oslo"), evolve=evolve, call=town_of)
    assert len(set(request)) == 3
    assert row["instruction"].count("I have a call") == 3
    assert row["verdict"] == "accept"
    assert "evolve" in json.loads(row["prompts"])


def test_a_value_that_evolution_lost_is_stated_again(ledger):
    lost = {"instruction": "Just tell me how late it is where my sister lives now."}
    answers: dict[str, Any] = {"evolve": lambda *_: lost, "generate": times("Oslo")}
    answers["revise"] = lambda _, data: {"instruction": f"{data['request']} She moved to Oslo"}
    answers["call"] = town_of
    row, _ = write_one(ledger, CLOCK, replace(EVOLVED, evolve_depth=1), **answers)
    steps = [step["step"] for step in json.loads(row["steps"])]
    assert steps == ["generate", "evolve", "revise", "call"]
    assert row["instruction"].endswith("She moved to Oslo")
    assert (row["status"], row["verdict"]) == ("ok", "accept")


def test_the_share_of_requests_that_evolve_is_kept():
    policy = SynthesisPolicy(evolve_share=0.34)
    rows = [{"contract_digest": f"c1:{n}"} for n in range(700)]
    drawn = [is_evolved(row, SINGLE, index, policy) for row in rows for index in range(3)]
    assert 0.31 < sum(drawn) / len(drawn) < 0.37


BESIDE = snapshot_rows([CITY_TIME, CONVERT, PING])
CHECKED = replace(ONE, checks=True)


@cases(
    "right, second, verdict",
    (True, "m-2", "accept"),
    (False, "m-2", "reject"),
    (False, None, "unsure"),
    ids=["both right", "two models wrong", "one model asked twice"],
)
def test_two_models_that_both_pick_another_tool_reject(ledger, right, second, verdict):
    def choose(_: Any, data: dict[str, str]) -> Any:
        base = CITY_TIME["name"] if right else PING["name"]
        number = next(name.split()[1] for name, text in data.items() if f'"{base}"' in text)
        return {"reason": "it tells the time", "tool": int(number)}

    answers = {"generate": times("Oslo"), "call": town_of, "choose": choose}
    row, _ = write_one(ledger, BESIDE, CHECKED, model={"second": second}, **answers)
    assert (row["status"], row["verdict"]) == ("ok", verdict)
    assert ("picked_another_tool" in row["flaws"]) is not right
    checks = json.loads(row["checks"])
    assert set(checks["picks"]) == {"checker_a", "checker_b"}
    assert set(checks["candidates"]) == {item["contract_digest"] for item in BESIDE}
    assert set(json.loads(row["contracts"])) == set(checks["candidates"])
    assert json.loads(row["offered"]) == [row["contract_digest"]]
    assert Counter(s["role"] for s in json.loads(row["steps"]))["checker_b"] == 1


@cases(
    "answers, outcome",
    ({"choose": lambda *_: "Hm."}, ("failed", "invocation_check", "non_json", None)),
    # What the rules reject costs no checker.
    ({"call": lambda *_: {"arguments": {}}}, ("ok", None, None, "reject")),
)
def test_checkers_that_give_no_answer_or_are_not_asked(ledger, answers, outcome):
    scripts = {"generate": times("Oslo"), "call": town_of, **answers}
    row, asked = write_one(ledger, BESIDE, CHECKED, **scripts)
    names = ("status", "failed_step", "error_kind")
    assert tuple(row[name] for name in names) == outcome[:3]
    if outcome[3]:
        assert row["verdict"] == outcome[3]
        assert "choose" not in asked
        assert json.loads(row["contracts"]) == [row["contract_digest"]]


def test_a_look_alike_is_written_beside_its_rivals_and_offered_among_them(ledger):
    offered: list[str] = []

    def generate(_: Any, data: dict[str, str]) -> Any:
        offered.append(data["look-alikes"])
        return times("Oslo")()

    policy = replace(ALL_TASKS, evolve_share=0.0)
    row, _ = write_one(ledger, BESIDE, policy, LOOKALIKE, generate=generate, call=town_of)
    assert PING["name"] in offered[0]
    assert CONVERT["name"] in offered[0]
    assert set(json.loads(row["offered"])) == {item["contract_digest"] for item in BESIDE}
    assert row["license"] == "MIT"


def test_an_edited_prompt_asks_the_ledger_only_for_its_own_step(ledger, monkeypatch):
    answer = planned(ROWS, ALL_TASKS, others(ROWS))
    with openai_endpoint(scripted()) as endpoint:
        before = compose_rows(answer, model_llm(ledger, endpoint.url), ALL_TASKS)
        first = len(endpoint.requests)
        edit(monkeypatch, "evolve")
        after = compose_rows(answer, model_llm(ledger, endpoint.url), ALL_TASKS)
        again = Counter(asked_of(body) for body in endpoint.requests[first:])
    evolved = [row for row in before if "evolve" in json.loads(row["prompts"])]
    assert 0 < len(evolved) < len(before)
    # The evolver says the same as before, so that nothing behind it is asked anew.
    assert set(again) == {"evolve"}
    changed = [a for a, b in zip(after, before, strict=True) if a["prompts"] != b["prompts"]]
    assert {row["pair_id"] for row in changed} == {row["pair_id"] for row in evolved}


def test_a_row_of_several_sources_carries_all_licences_and_profiles_are_stable_and_varied(offline):
    listed = zip(BESIDE, ("MIT", "Apache-2.0", None), strict=True)
    rows = [{**row, "license": licence} for row, licence in listed]
    policy = replace(ALL_TASKS, evolve_share=0.0)
    for count, licence in ((2, "Apache-2.0 AND MIT"), (3, None)):
        units = only(planned(rows[:count], policy, others(rows[:count])), LOOKALIKE)
        assert {row["license"] for row in compose_rows(units, offline, policy)} == {licence}
    first = compose_rows(planned(ROWS), offline, SINGLES)
    personas = {json.loads(row["profile"])["persona"] for row in first}
    assert len(personas) > 0.8 * len(first)
    german = replace(SINGLES, languages=("en", "de", "tr"))
    composed = compose_rows(planned(ROWS, german), offline, german)
    assert {json.loads(row["profile"])["language"] for row in composed} == {"en", "de", "tr"}
    same = [dump_text(json.loads(row["profile"]) | {"language": "en"}) for row in composed]
    assert same == [row["profile"] for row in first], "another language moves nothing else"
