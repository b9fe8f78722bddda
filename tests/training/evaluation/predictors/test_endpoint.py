"""An endpoint is asked with tools over real HTTP, pays once, and its faults are rows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.openai_endpoint import Endpoint, Say, openai_endpoint
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_run import evaluate_predictors
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.endpoint_predictor import STAGE, EndpointPredictor
from training.evaluation.predictor import CannotPredict, PredictionRequest
from warehouse.llm.chat import write_wire_name
from warehouse.llm.roles import Role
from warehouse.store import Warehouse

TOOL = {
    "name": "files/find.one",
    "description": "Finds a file.",
    "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}},
}
ASKED = [PredictionRequest(f"i{n}", f"Please find the file number {n}.", [TOOL]) for n in range(6)]


def called(*calls: tuple[str, Any], content: str | None = None) -> Say:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate(calls)
    ]
    body = {
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "tool_calls",
             "message": {"role": "assistant", "content": content, "tool_calls": made}}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }  # fmt: skip
    return Say(raw=json.dumps(body))


def obedient(body: dict[str, Any], number: int) -> Say:
    """Calls the first tool it is offered, sometimes in words."""
    name = body["tools"][0]["function"]["name"]
    if number % 3 == 0:
        return Say(json.dumps({"name": name, "arguments": {"title": "a"}}))
    return called((name, '{"title": "a"}'))


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    return Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)


def predictor(endpoint: Endpoint, warehouse: Warehouse, **changed: Any) -> EndpointPredictor:
    from warehouse.llm.endpoint import OpenAIEndpoint as Wire

    held: dict[str, Any] = {"model": "m", "base_url": endpoint.url, "usd_in": 1.0, "usd_out": 2.0,
                            "temperature": 0.0, "attempts": 2} | changed  # fmt: skip
    return EndpointPredictor(
        Role("evaluated", **held), warehouse.ledger, endpoint=Wire(backoff_s=0.01)
    )


def test_tools_are_offered_by_names_that_endpoints_take_and_nothing_is_paid_twice(
    warehouse: Warehouse,
) -> None:
    with openai_endpoint(obedient) as endpoint:
        first = predictor(endpoint, warehouse).predict(ASKED)
        sent = len(endpoint.requests)
        again = predictor(endpoint, warehouse).predict(ASKED)
        assert len(endpoint.requests) == sent == 6
    body = endpoint.requests[0]
    assert body["tools"][0]["function"]["name"] == write_wire_name("files/find.one")
    assert body["tools"][0]["function"]["parameters"] == TOOL["inputSchema"]
    right = [{"name": "files/find.one", "arguments": {"title": "a"}}]
    assert [answer.calls for answer in first] == [right] * 6
    assert [answer.calls for answer in again] == [right] * 6
    assert {answer.seconds for answer in again} == {None}
    paid = sum(answer.usd for answer in first)
    assert 0 < paid == pytest.approx(warehouse.ledger.spent())
    assert {cost["stage"] for cost in warehouse.ledger.costs()} == {STAGE}


def test_a_conversation_is_gone_on_with(warehouse: Warehouse) -> None:
    call = {"name": "files/find.one", "arguments": {"title": 1}}
    before = (
        {"role": "user", "content": "Please find a file."},
        {"role": "assistant", "content": "", "weight": 0,
         "tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": "title must be text"},
    )  # fmt: skip
    with openai_endpoint(obedient) as endpoint:
        predictor(endpoint, warehouse).predict([PredictionRequest("i", "", [TOOL], before=before)])
    system, user, wrong, error = endpoint.requests[0]["messages"]
    assert system["role"] == "system"
    assert (user, error) == (before[0], before[2])
    [made] = wrong["tool_calls"]
    assert "weight" not in wrong
    assert made["function"] == {
        "name": write_wire_name("files/find.one"), "arguments": '{"title": 1}',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("say", "kind", "calls"),
    [
        (Say("No tool fits."), "prose", 0),
        (called(("files_find_one", "{broken")), "invalid_json", 0),
        (called(("files_find_one", "{}"), ("other", "{}")), "call", 2),
        (called(("files_find_one", '{"title": "a"}'), content="<think>x</think>"), "call", 1),
        (called(("invented", "[1]")), "invalid_json", 0),
        (Say(""), "no_call", 0),
    ],
)
def test_what_a_model_answers_is_an_outcome(
    warehouse: Warehouse, say: Say, kind: str, calls: int
) -> None:
    with openai_endpoint([say]) as endpoint:
        answer = predictor(endpoint, warehouse).predict(ASKED[:1])[0]
    assert (answer.kind, len(answer.calls), answer.error) == (kind, calls, None)


def test_faults_are_rows_that_are_counted_apart_and_asked_again(
    warehouse: Warehouse, items: list[CallerItem]
) -> None:
    some = [item for item in items if item.split == "unseen_server" and item.expected][:12]
    down = {"now": True}

    def say(body: dict[str, Any], number: int) -> Say:
        if down["now"] and "Blue Sky" in body["messages"][-1]["content"]:
            return Say("no such model", status=400)
        return obedient(body, 1)

    with openai_endpoint(say) as endpoint:
        rows = evaluate_predictors(
            [BaselinePredictor(), predictor(endpoint, warehouse)], some, "set"
        )
        lost = [row for row in rows if row["failed"]]
        summary = summarise_calls(rows, "endpoint:m")
        assert 0 < len(lost) < len(some)
        assert summary["failures"] == {"candidate": {"bad_request": len(lost)}}
        assert summary["items"] == len(some) - len(lost)
        sent = len(endpoint.requests)
        down["now"] = False
        rows = evaluate_predictors([predictor(endpoint, warehouse)], some, "set")
        assert not any(row["failed"] for row in rows)
        assert len(endpoint.requests) == sent + len(lost)


def test_a_budget_that_is_spent_sends_nothing(tmp_path: Path) -> None:
    poor = Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=0.0)
    with openai_endpoint(obedient) as endpoint:
        answers = predictor(endpoint, poor).predict(ASKED)
        assert endpoint.requests == []
    assert {answer.error for answer in answers} == {"budget_exceeded"}


def test_an_endpoint_that_is_down_fails_every_row_and_raises_nothing(warehouse: Warehouse) -> None:
    with openai_endpoint([Say(close=True)]) as endpoint:
        answers = predictor(endpoint, warehouse).predict(ASKED)
    assert {answer.error for answer in answers} == {"endpoint_down"}
    with pytest.raises(CannotPredict, match=r"roles\.caller\.model"):
        EndpointPredictor(Role("caller"), warehouse.ledger)
