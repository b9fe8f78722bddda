"""A turn with tools: paid once, read tolerantly, refused clearly."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.openai_endpoint import Endpoint, Say, openai_endpoint
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.ledger.ledger import Ledger
from warehouse.llm.chat import ChatClient, ChatTurn, write_wire_name
from warehouse.llm.endpoint import OpenAIEndpoint as Wire
from warehouse.llm.roles import LLMError, Role
from warehouse.storage.blobs import Blobs

ASKED = [{"role": "user", "content": "What time is it in Oslo?"}]
PACKED_TWICE = gzip.compress(gzip.compress(bytes(60 << 20)))
TOOL = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    result = Ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))
    yield result
    result.close()


def calling(*calls: tuple[str, Any], content: Any = None, **more: Any) -> Say:
    held = [
        {"id": "x", "type": "function", "function": {"name": n, "arguments": a}} for n, a in calls
    ]
    message = {"role": "assistant", "content": content, "tool_calls": held}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return Say(raw=json.dumps({"model": "m", "choices": [choice], "usage": usage}), **more)


async def converse(
    endpoint: Endpoint, ledger: Ledger, tools: Any = (TOOL,), **role: Any
) -> ChatTurn:
    facts = {"usd_in": 1.0, "usd_out": 2.0, "attempts": 2, **role}
    chat = ChatClient(
        Role("actor", model="m", base_url=endpoint.url, **facts),
        ledger,
        stage="t",
        endpoint=Wire(backoff_s=0.01),
    )
    try:
        return await chat.say(ASKED, tools)
    finally:
        await chat.aclose()


async def test_a_turn_is_paid_once_and_has_its_receipt(ledger):
    with openai_endpoint([calling(("time", '{"zone": "Oslo"}'), ("time", {"zone": "Rome"}))]) as at:
        first, again = await converse(at, ledger), await converse(at, ledger)
    assert first.calls == (("time", '{"zone": "Oslo"}'), ("time", {"zone": "Rome"}))
    assert (first.prompt_tokens, first.completion_tokens, first.cached) == (100, 10, False)
    assert first.usd == pytest.approx(0.00012) == ledger.spent()
    assert again == ChatTurn(**{**vars(first), "cached": True})
    (body,) = at.requests
    assert (body["tools"], body["messages"], body["model"]) == ([TOOL], ASKED, "m")
    assert "response_format" not in body


def answer_with(**changed: Any) -> Say:
    """A sound answer whose top-level fields are changed, as it goes over the wire."""
    sound = json.loads(calling(content="Noon.").raw or "")
    return Say(raw=json.dumps({**sound, **changed}).replace("Infinity", "1e999"))


@cases(
    "say",
    answer_with(usage={"prompt_tokens": 10**20}),
    answer_with(usage={"prompt_tokens": float("inf")}),
    answer_with(usage={"prompt_tokens": -1_000_000}),
    answer_with(usage={"completion_tokens": "many"}),
    Say(raw="[" * 100_000),
    Say(raw=gzip.compress(bytes(60 << 20)), headers={"content-encoding": "gzip"}),
    Say(raw=PACKED_TWICE, headers={"content-encoding": "gzip, gzip"}),
    Say(raw=b"[" + b" " * (9 << 20)),
    ids=["too many", "infinite", "negative", "words", "deep", "packed", "twice", "long"],
)
async def test_an_answer_that_cannot_be_counted_keeps_its_reservation(ledger, say):
    with openai_endpoint([say]) as at, pytest.raises(LLMError) as caught:
        await converse(at, ledger)
    assert caught.value.kind == "server_error"
    assert ledger.spent() > 0, "it may have been billed"
    assert len(ledger.list_unknown()) >= 1


async def test_a_packed_answer_is_unpacked(ledger):
    raw = calling(content="Noon.").raw
    assert isinstance(raw, str)
    packed = Say(raw=gzip.compress(raw.encode()), headers={"content-encoding": "gzip"})
    with openai_endpoint([packed]) as at:
        assert (await converse(at, ledger)).text == "Noon."


async def test_half_a_surrogate_pair_in_a_models_name_is_paid_once(ledger):
    with openai_endpoint([answer_with(model="\ud800")]) as at:
        first, again = await converse(at, ledger), await converse(at, ledger)
    assert (len(at.requests), again.cached, first.text) == (1, True, "Noon.")


async def test_a_redirect_is_not_followed(ledger):
    with openai_endpoint([Say("Noon.")]) as other:
        away = Say("", 307, headers={"Location": f"{other.url}/chat/completions"})
        with openai_endpoint([away]) as at, pytest.raises(LLMError):
            await converse(at, ledger)
    assert other.requests == []


@cases(
    "odd",
    Say(raw="<html>"),
    Say(raw='{"choices": []}'),
    Say(raw='{"choices": [{"message": {"tool_calls": [{"function": null}]}}]}'),
    Say(raw='{"choices": [{"message": {"tool_calls": 7}}]}'),
    Say("busy", 503),
    Say(close=True),
)
async def test_a_broken_response_is_asked_for_again(ledger, odd):
    with openai_endpoint([odd, calling(content=[{"text": "No"}, {"text": "on."}])]) as at:
        assert (await converse(at, ledger)).text == "Noon."
    with openai_endpoint([odd]) as at, pytest.raises(LLMError) as failed:
        await converse(at, ledger, tools=())
    assert failed.value.kind in ("server_error", "endpoint_down")
    assert (
        "roles" in str(failed.value)
        or "base_url" in str(failed.value)
        or "again" in str(failed.value)
    )


async def test_half_characters_reach_no_ledger(ledger):
    with openai_endpoint([calling(("time\ud800", '{"zone": "\ud800"}'), content="\ud800!")]) as at:
        turn = await converse(at, ledger)
    assert (turn.calls, turn.text) == ((("time?", '{"zone": "?"}'),), "?!")


async def test_rules_do_not_converse_and_a_budget_holds(ledger):
    with pytest.raises(LLMError, match=r"set roles\.actor\.model"):
        ChatClient(Role("actor"), ledger, stage="t")
    ledger.set_budget("usd", 0.001)
    with openai_endpoint([Say("never")]) as at, pytest.raises(BudgetExceeded):
        await converse(at, ledger)
    assert at.requests == []


@given(st.text(max_size=100))
def test_every_tool_has_a_name_that_endpoints_take(name):
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", write_wire_name(name))
    assert write_wire_name(name) == name or re.match("[a-zA-Z_]", write_wire_name(name))


NAMES = st.text(max_size=90) | st.text("ab_-.:", max_size=90)


@given(NAMES, NAMES)
def test_no_tool_takes_the_name_of_another_whatever_stands_beside_it(one, other):
    assert (write_wire_name(one) == write_wire_name(other)) == (one == other)


@cases("name", "get", "a_b", "get-time", "x" * 64, "report_20240101")
@cases("appended", "", ".b", "時", "x" * 65, "::read_file", "\n")
def test_a_name_that_is_sound_stays_and_any_other_ends_with_its_digest(name, appended):
    wire_name = write_wire_name(name + appended)
    if not appended:
        assert wire_name == name
        return
    digest = hashlib.sha256((name + appended).encode()).hexdigest()[:16]
    assert wire_name.endswith(f"_{digest}")
    assert write_wire_name(wire_name) != wire_name, "a tool that is called so has a name of its own"


def test_what_is_cut_is_the_beginning():
    wire_name = write_wire_name("https://" + "long." * 20 + "example/mcp::search_documents")
    assert len(wire_name) == 64
    assert "example_mcp__search_documents_" in wire_name
