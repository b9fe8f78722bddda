"""Tasks beyond the single call, each through the grammar and through a scripted endpoint."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assets.contracts.validate import validate_call
from assets.synthesis.tables import (
    CLARIFY,
    MISSING,
    NO_TOOL,
    PAIRS,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    TASKS,
    read_goldens,
)
from assets.synthesis.writing.plan import compose_rows
from tests.support.cases import cases
from tests.support.openai_endpoint import openai_endpoint
from tests.synthesis.contracts import CITY_TIME, CREATE_ISSUE, PING, make_tool, snapshot_rows
from tests.synthesis.scripted import (
    ALL_TASKS,
    CLOSE_TICKET,
    FIND_TICKET,
    MARKET,
    model_llm,
    others,
    planned,
    scripted,
    write_one,
)
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM

Json = Any
ROWS = snapshot_rows(MARKET)
CONTRACTS = {row["contract_digest"]: row["contract"] for row in ROWS}
POLICY = replace(ALL_TASKS, evolve_share=0.0)
DESK = snapshot_rows([FIND_TICKET, CLOSE_TICKET])
CLOCK = snapshot_rows([CITY_TIME])


def write(ledger: Ledger, rows: list[Json], task: str, **answers: Any) -> tuple[Json, list[str]]:
    return write_one(ledger, rows, POLICY, task, **answers)


def list_turns(row: Json) -> list[tuple[str, Json]]:
    """(role, text or calls) of a conversation."""
    return [
        (m["role"], m["content"] or [(c["function"]["name"], json.loads(c["function"]["arguments"]))
                                     for c in m["tool_calls"]])
        for m in json.loads(row["messages"])
    ]  # fmt: skip


@pytest.fixture(params=["offline", "scripted"])
def every_row(request: pytest.FixtureRequest, ledger: Ledger, offline: LLM) -> list[Json]:
    """All rows of all tasks of a small marketplace, by each kind of model."""
    answer = planned(ROWS, ALL_TASKS, others(ROWS))
    if request.param == "offline":  # its sequences are those of explorations
        return compose_rows([u for u in answer if u.task != SEQUENTIAL], offline, ALL_TASKS)
    with openai_endpoint(scripted()) as endpoint:
        return compose_rows(answer, model_llm(ledger, endpoint.url), ALL_TASKS)


def test_every_task_is_written_and_holds_what_it_promises(request, every_row):
    PAIRS.frame(every_row)
    whole = [row for row in every_row if row["status"] == "ok"]
    invented = {SEQUENTIAL} if "offline" in request.node.name else set()
    assert {row["task"] for row in whole if row["verdict"] == "accept"} == {*TASKS} - invented
    assert len(whole) >= 0.85 * len(every_row)
    for row in whole:
        messages, calls = json.loads(row["messages"]), read_goldens(row)
        offered = json.loads(row["offered"])
        assert messages[0] == {"role": "user", "content": row["instruction"]}
        assert row["contract_digest"] in offered
        assert set(offered) <= set(json.loads(row["contracts"]))
        assert {call.contract_digest for call in calls} <= set(offered)
        answer = [call for m in messages for call in m.get("tool_calls") or []]
        answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
        assert len({call["id"] for call in answer}) == len(answer)
        assert set(answered) <= {call["id"] for call in answer}
        last = [json.loads(call["function"]["arguments"]) for call in answer[-len(calls) :]]
        assert last == [call.arguments for call in calls] or not calls
        if row["verdict"] == "accept":
            assert all(not validate_call(CONTRACTS[c.contract_digest], c.arguments) for c in calls)
        check = {
            PARALLEL: len(calls) >= 2 and len(messages) == 2 and not row["simulated"],
            SEQUENTIAL: bool(calls and calls[-1].borrowed) and bool(row["simulated"]),
            NO_TOOL: not calls and row["arguments"] is None and messages[-1]["content"],
            MISSING: not calls and not answer and "?" in messages[-1]["content"],
            CLARIFY: len(calls) == 1 and [m["role"] for m in messages[:3]].count("user") == 2,
            RECOVERY: len(calls) == 1 and len(answer) == 2 and bool(row["simulated"]),
        }
        assert check.get(row["task"], len(calls) == 1), row["task"]


def two_times(first: Json, second: Json, **more: Json) -> Any:
    calls = [{"tool": 1, "arguments": first}, {"tool": 1, "arguments": second, **more}]
    return lambda *_: {"instruction": "What time is it in Oslo and in Bern?", "calls": calls}


OSLO, BERN = {"timezone": "Europe/Oslo"}, {"timezone": "Europe/Bern"}


def test_parallel_calls_are_one_message_of_the_assistant(ledger):
    row, request = write(ledger, CLOCK, PARALLEL, several=two_times(OSLO, BERN))
    name = CITY_TIME["name"]
    assert list_turns(row)[1:] == [("assistant", [(name, OSLO), (name, BERN)])]
    assert json.loads(row["arguments"]) == OSLO
    assert (row["status"], row["verdict"], request) == ("ok", "accept", ["several"])


def half_said(*_: Any) -> Json:
    return {**two_times(OSLO, BERN)(), "instruction": "What time is it in Oslo, and at my aunt's?"}


def test_a_parallel_request_that_lacks_a_value_goes_to_the_reviser(ledger):
    def revise(_: Any, data: dict[str, str]) -> Json:
        assert json.loads(data["values that were meant"]) == BERN
        return {"instruction": data["request"].replace("at my aunt's", "in Bern")}

    row, request = write(ledger, CLOCK, PARALLEL, several=half_said, revise=revise)
    assert request == ["several", "revise"]
    assert row["instruction"] == "What time is it in Oslo, and in Bern?"
    assert (row["status"], row["verdict"]) == ("ok", "accept")


def chain(borrowed: list[str], **arguments: Json) -> Any:
    calls = [
        {"tool": 1, "arguments": {"word": "tap"}},
        {"tool": 2, "arguments": arguments, "borrowed": borrowed},
    ]
    return lambda *_: {"instruction": "Find the ticket about the tap and close it.", "calls": calls}


def test_the_second_call_of_a_sequence_uses_what_the_first_returned(ledger):
    row, request = write(ledger, DESK, SEQUENTIAL, several=chain(["ticket_id"], ticket_id="T-881"))
    assert (row["status"], row["verdict"], row["simulated"]) == ("ok", "accept", True)
    assert [role for role, _ in list_turns(row)] == ["user", "assistant", "tool", "assistant"]
    assert "T-881" in list_turns(row)[2][1]
    assert list_turns(row)[3][1] == [(CLOSE_TICKET["name"], {"ticket_id": "T-881"})]
    assert read_goldens(row)[1].borrowed == ("ticket_id",)
    assert request == ["several", "act"]


def test_a_result_that_holds_another_value_is_read_by_the_caller(ledger):
    read: list[str] = []

    def call(_: Any, data: dict[str, str]) -> Json:
        read.append(data["request"])
        return {"arguments": {"ticket_id": "HD-7"}}

    answers = {"several": chain(["ticket_id"]), "call": call}
    answers["act"] = lambda *_: {"content": '{"tickets": [{"id": "HD-7", "subject": "tap"}]}'}
    row, request = write(ledger, DESK, SEQUENTIAL, **answers)
    assert request == ["several", "act", "call"]
    assert "HD-7" in read[0]
    assert json.loads(row["calls"])[1]["arguments"] == {"ticket_id": "HD-7"}
    assert (row["status"], row["verdict"]) == ("ok", "accept")


def test_no_tool_is_an_answer_without_a_call_among_the_tools_at_hand(ledger):
    beside = snapshot_rows([CITY_TIME, PING])
    aside = {"instruction": "Why do we have leap seconds?", "reply": "The Earth turns unevenly."}
    row, _ = write(ledger, beside, NO_TOOL, no_tool=lambda *_: aside)
    assert list_turns(row) == [("user", aside["instruction"]), ("assistant", aside["reply"])]
    assert (row["calls"], row["arguments"]) == ("[]", None)
    assert set(json.loads(row["offered"])) == {item["contract_digest"] for item in beside}
    assert row["status"] == "ok"
    assert row["verdict"] != "reject"


FORGOT = {
    "instruction": "How late is it at my sister's?",
    "question": "Where does your sister live?",
    "answer": "In Oslo.",
    "values": OSLO,
}


def test_a_missing_value_is_asked_for(ledger):
    row, request = write(ledger, CLOCK, MISSING, missing=lambda *_: FORGOT)
    assert list_turns(row) == [("user", FORGOT["instruction"]), ("assistant", FORGOT["question"])]
    assert (row["verdict"], row["calls"], request) == ("accept", "[]", ["missing"])


def test_a_clarification_goes_on_to_the_answer_and_the_call(ledger):
    answers = {"missing": lambda *_: FORGOT, "call": lambda *_: {"arguments": OSLO}}
    row, request = write(ledger, CLOCK, CLARIFY, **answers)
    assert list_turns(row)[2:] == [("user", "In Oslo."), ("assistant", [(CITY_TIME["name"], OSLO)])]
    assert (row["verdict"], request) == ("accept", ["missing", "call"])


def issue(*_: Any) -> Json:
    values = {"project_key": "OPS", "title": "Tap leaks", "priority": "high"}
    text = "Open a high priority issue titled 'Tap leaks' in project OPS, would you?"
    return {"requests": [{"instruction": text, "values": values}]}


def test_a_wrong_call_gets_the_validators_error_and_is_repaired(ledger):
    right = issue()["requests"][0]["values"]
    sent: dict[str, str] = {}

    def repair(_: Any, data: dict[str, str]) -> Json:
        sent.update(data)
        return {"arguments": right}

    answers = {"generate": issue, "call": lambda *_: {"arguments": right}, "repair": repair}
    row, request = write(ledger, ISSUES, RECOVERY, **answers)
    talk = list_turns(row)
    [(_, wrong)] = talk[1][1]
    flaws = validate_call(CREATE_ISSUE, wrong)
    assert flaws
    assert talk[2] == ("tool", sent["error"])
    assert any(flaw.message in sent["error"].replace('\\"', '"') for flaw in flaws)
    assert json.loads(sent["arguments that were refused"]) == wrong
    assert talk[3][1] == [(CREATE_ISSUE["name"], right)]
    assert (row["status"], row["verdict"], row["simulated"]) == ("ok", "accept", True)
    assert request == ["generate", "call", "repair"]


ISSUES = snapshot_rows([CREATE_ISSUE])
REMEMBER = snapshot_rows(
    [make_tool("remember", "Remember a thing.", {"what": {}}, additionalProperties=True)]
)
LOST = {"instruction": "What time is it in Bern, and at my uncle's?"}
KEEP = {"requests": [{"instruction": "Keep in mind: the tap is fixed."}]}
FIXED = {"call": lambda *_: {"arguments": {"what": "the tap is fixed"}}}
IN_OSLO, BORROWED = {"tool": 1, "arguments": OSLO}, two_times(OSLO, BERN, borrowed=["timezone"])
IN_NO_RESULT = {
    "several": chain(["ticket_id"], ticket_id="T-1"),
    "act": lambda *_: {"content": "nothing found"},
    "call": lambda *_: {"arguments": {"ticket_id": "T-1"}},
}


def say_calls(*calls: Json) -> Any:
    return lambda *_: {"instruction": "What time is it?", "calls": [*calls]}


@cases(
    "rows, task, step, kind, answers",
    (CLOCK, PARALLEL, "several", "wrong_calls", {"several": two_times(OSLO, OSLO)}),
    (CLOCK, PARALLEL, "several", "wrong_tool", {"several": two_times(OSLO, BERN, tool=2)}),
    (CLOCK, PARALLEL, "several", "wrong_calls", {"several": BORROWED}),
    (CLOCK, PARALLEL, "several", "wrong_shape", {"several": say_calls({"tool": 1})}),
    (CLOCK, PARALLEL, "several", "wrong_calls", {"several": say_calls(*[IN_OSLO] * 4)}),
    (CLOCK, PARALLEL, "revise", "not_stated", {"several": half_said, "revise": lambda *_: LOST}),
    (DESK, SEQUENTIAL, "call", "not_borrowed", IN_NO_RESULT),
    (DESK, SEQUENTIAL, "several", "wrong_calls", {"several": chain([], ticket_id="T-1")}),
    (REMEMBER, RECOVERY, "wrong_call", "no_wrong_call", {"generate": lambda *_: KEEP, **FIXED}),
    ids=[
        *("twice the same", "a tool not shown", "borrowed", "one call", "four calls"),
        *("lost by the reviser", "in no result", "borrows nothing", "refuses nothing"),
    ],
)
def test_what_cannot_be_its_task_fails_the_row(ledger, rows, task, step, kind, answers):
    row, _ = write(ledger, rows, task, **answers)
    assert (row["status"], row["failed_step"], row["error_kind"]) == ("failed", step, kind)
    assert row["hint"]


NAMED = {"instruction": "Call get_current_time for me.", "reply": "No."}
STATED = {**FORGOT, "instruction": "How late is it in Oslo, at my sister's?"}
UNREPAIRED = {
    "generate": issue,
    "call": lambda *_: {"arguments": issue()["requests"][0]["values"]},
    "repair": lambda *_: {"arguments": {"title": "Tap leaks", "colour": "blue"}},
}


@cases(
    "rows, task, answers",
    (CLOCK, NO_TOOL, {"no_tool": lambda *_: NAMED}),
    (CLOCK, CLARIFY, {"missing": lambda *_: STATED, "call": lambda *_: {"arguments": OSLO}}),
    (CLOCK, MISSING, {"missing": lambda *_: {**FORGOT, "question": "Done."}}),
    (ISSUES, RECOVERY, UNREPAIRED),
    ids=["names a tool", "nothing was missing", "asks nothing", "is not repaired"],
)
def test_a_conversation_that_is_not_its_task_is_rejected(ledger, rows, task, answers):
    row, _ = write(ledger, rows, task, **answers)
    assert (row["status"], row["verdict"]) == ("ok", "reject")
