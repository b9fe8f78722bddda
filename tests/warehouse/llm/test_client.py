"""The clients against a real endpoint on loopback, through the real `openai` SDK."""

import asyncio
import gzip
import hashlib
import json
import re
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.cases import cases
from tests.support.errors import expect_kind
from tests.support.openai_endpoint import Endpoint, Say, openai_endpoint
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.ledger.ledger import Ledger
from warehouse.llm.chat import ChatClient, ChatTurn, write_wire_name
from warehouse.llm.client import (
    GIVE_UP_AFTER,
    LLM,
    LLMError,
    ModelCompletion,
    ModelReply,
    ModelRequest,
    Role,
    make_request_key,
)
from warehouse.llm.endpoint import OpenAIEndpoint
from warehouse.llm.json_answers import BadAnswer, parse_answer

GOOD = '{"word": "heron", "count": 3}'
ASK = [{"role": "user", "content": "Name a bird and a number."}]


class Bird(BaseModel):
    word: str
    count: int


class Fish(BaseModel):
    word: str


class Scripted:
    """An offline provider that says what it is told and counts how often it is asked."""

    def __init__(self, text: str = GOOD, version: str = "v1") -> None:
        self.text, self._version, self.asked = text, version, 0

    def version(self) -> str:
        return self._version

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        self.asked += 1
        return ModelCompletion(text=self.text, finish="stop", model=f"offline:{self._version}")


def client(ledger: Ledger, url: str, **role: Any) -> LLM:
    settings = {"model": "bird-1", "api_key": "k", "timeout_s": 5.0, "attempts": 3, **role}
    who = Role("generator", base_url=url, **settings)
    return LLM([who], ledger, endpoint=OpenAIEndpoint(backoff_s=0.01))


def ask(llm: LLM, seed: int = 0, times: int = 1) -> list[ModelReply[Bird]]:
    async def run() -> list[ModelReply[Bird]]:
        tasks = [llm.complete("generator", ASK, schema=Bird, seed=seed + i) for i in range(times)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await llm.aclose()

    return asyncio.run(run())


@cases(
    "text",
    GOOD,
    f"```json\n{GOOD}\n```",
    f"Sure! Here is the object you wanted:\n\n{GOOD}\n\nAnything else?",
    '{"word": "heron", "count": 3, "extra": [1, 2]}',
    "{'word': 'heron', 'count': 3,}",
    f"<think>a bird {{...}} hm</think>{GOOD}",
    f"Voilà, c’est fait — 完了：{GOOD} ありがとう",
    f"[{GOOD}]",
    '{"word": "heron", "count": 3',
    ids=[
        "plain", "fences", "prose", "extra_fields", "python_quotes", "thinking", "another_language",
        "in_a_list", "unclosed",
    ],
)  # fmt: skip
def test_an_answer_is_read_whatever_it_is_wrapped_in(ledger, text):
    with openai_endpoint([Say(text)]) as endpoint:
        (reply,) = ask(client(ledger, endpoint.url))
    assert reply.value == Bird(word="heron", count=3)
    assert len(endpoint.requests) == 1


def test_an_answer_is_paid_once_and_read_from_the_ledger_with_its_receipt(ledger):
    with openai_endpoint([Say(GOOD)]) as endpoint:
        (first,) = ask(client(ledger, endpoint.url, usd_in=1.0, usd_out=2.0))
        (second,) = ask(client(ledger, endpoint.url, usd_in=1.0, usd_out=2.0))
    assert len(endpoint.requests) == 1
    assert (first.cached, second.cached) == (False, True)
    assert first.usd == second.usd == pytest.approx((6 * 1.0 + 4 * 2.0) / 1e6)
    assert ledger.spent("usd") == pytest.approx(first.usd)
    (blob,) = [path for path in ledger.blobs.root.rglob("*") if path.is_file()]
    stored = json.loads(ledger.blobs.get(blob.name))
    assert (stored["prompt_tokens"], stored["model"]) == (6, "bird-1")


def test_the_key_holds_what_can_change_the_answer_and_nothing_else():
    def key(
        meta: Any = None, version: str = "", seed: int = 0, variant: str = "",
        messages: Any = ASK, schema: type[BaseModel] = Bird, limit: int = 10, **role: Any,
    ) -> str:  # fmt: skip
        who = Role("generator", **{"model": "m", **role})
        request = ModelRequest(who, messages, schema, seed, meta or {}, limit)
        return make_request_key(request, version, variant)

    same = key()
    assert same == key(timeout_s=1, max_tokens=99, base_url="http://h", api_key="k", concurrency=1)
    assert same == key(requests_per_minute=6, tokens_per_minute=7, attempts=9, usd_in=1, usd_out=2)
    assert same == key(limit=4000)
    assert key(schema=Fish) != same != key(messages=[{"role": "user", "content": "A fish."}])
    assert same == key(meta={"x": 1}), "an endpoint never sees meta"
    assert len({same, key(model="n"), key(temperature=0.0), key(seed=1), key(variant="again")}) == 5
    assert len({key(version="v1"), key(version="v2"), key(version="v1", meta={"x": 1})}) == 3


def test_a_rate_limit_and_a_server_error_pass(ledger):
    limited = Say("slow down", status=429, headers={"retry-after": "0.05"})
    with openai_endpoint([limited, Say("oops", status=503), Say(GOOD)]) as endpoint:
        (reply,) = ask(client(ledger, endpoint.url))
    assert reply.value.word == "heron"
    assert len(endpoint.requests) == 3
    assert ledger.counts() == {("llm:generator", "failed"): 2, ("llm:generator", "done"): 1}


def test_a_truncated_answer_is_asked_for_again_with_more_room(ledger):
    with openai_endpoint([Say('{"word": "her', finish="length"), Say(GOOD)]) as endpoint:
        (reply,) = ask(client(ledger, endpoint.url, max_tokens=16))
        ask(client(ledger, endpoint.url, max_tokens=16))
    assert [request["max_tokens"] for request in endpoint.requests] == [16, 64]
    assert reply.completion_tokens == 2 + 4, "both answers were paid"


def test_a_raised_limit_asks_anew_only_where_the_answer_was_cut_off(ledger):
    def model(body: dict[str, Any], _number: int) -> Say:
        return Say(GOOD) if body["max_tokens"] >= 400 else Say('{"word": "her', finish="length")

    with openai_endpoint(model) as endpoint:
        for _ in range(2):
            with pytest.raises(LLMError, match="raise max_tokens"):
                ask(client(ledger, endpoint.url, max_tokens=16))
        assert len(endpoint.requests) == 2
        replies = [ask(client(ledger, endpoint.url, max_tokens=100)) for _ in range(2)]
    assert [reply.value.word for (reply,) in replies] == ["heron"] * 2
    assert len(endpoint.requests) == 3


@cases(
    "say, kind, sent",
    (Say(""), "empty", 2),
    (Say(None), "empty", 2),
    (Say("I would rather talk about the weather."), "non_json", 2),
    (Say('{"word": "heron"}'), "wrong_shape", 2),
    (Say('{"word": "heron", "count": "many"}'), "wrong_shape", 2),
    (Say("No.", finish="content_filter"), "refused", 1),
    (Say(None, refusal="I cannot help with that."), "refused", 1),
    (Say('{"word": "her', finish="length"), "truncated", 2),
    (Say('{"a": "' + "x" * 1_000_000 + '"}'), "wrong_shape", 1),
    (Say("no such model", status=404), "bad_request", 1),
    (Say("who are you", status=401), "auth", 1),
    (Say("busy", status=429), "rate_limited", 3),
    (Say("busy", status=500), "server_error", 3),
    (Say(raw="<html>Bad gateway</html>"), "server_error", 3),
    (Say(raw='{"id": "chatcmpl'), "server_error", 3),
    (Say(close=True), "endpoint_down", 3),
    (Say(GOOD, delay_s=5.0), "timeout", 3),
    (Say(GOOD, drip_s=0.05), "timeout", 3),
    (Say(GOOD, half=True), "endpoint_down", 3),
    (Say("抱歉: {我无法回答这个问题}"), "non_json", 2),
    (Say("{" * 5000), "non_json", 2),
    (Say("[" * 50_000 + "{"), "non_json", 2),
    (Say("w " * 500_000), "wrong_shape", 1),
    (Say('[{"word": "heron"'), "wrong_shape", 2),
)
def test_an_unusable_answer_has_a_kind_and_a_hint(ledger, say, kind, sent):
    with openai_endpoint([say]) as endpoint:
        slow = {"timeout_s": 0.5} if say.delay_s or say.drip_s else {}
        llm = client(ledger, endpoint.url, **slow)
        with pytest.raises(LLMError) as caught:
            ask(llm)
    assert caught.value.kind == kind
    assert caught.value.hint
    assert len(endpoint.requests) == sent
    assert llm.counts["failed"] == 1


@cases(
    "text",
'{"a" ' + '"a" ' * 40_000, "{," * 90_000, "<think>" * 28_000, "```{`" * 39_000,
     "".join(f'```{{"a": {n}}}```' for n in range(12_000)),
    ids=["strings", "commas", "thoughts", "fences", "many"],
)  # fmt: skip
def test_no_answer_holds_the_others_up_for_minutes(text):
    """Unbounded, the repair of the first took 8.6 s for 10,000 characters, and four times that
    for twice as many."""
    with pytest.raises(BadAnswer):
        parse_answer(text, "stop", Bird)


def test_a_malformed_answer_is_asked_for_again_with_the_complaint(ledger):
    with openai_endpoint([Say("a heron, and three"), Say(GOOD)]) as endpoint:
        (reply,) = ask(client(ledger, endpoint.url))
        (cached,) = ask(client(ledger, endpoint.url))
    assert reply.value.count == cached.value.count == 3
    assert "JSON" in endpoint.requests[1]["messages"][-1]["content"]
    assert len(endpoint.requests) == 2, "both answers are kept: nothing is asked twice"


def test_parameters_that_the_endpoint_rejects_are_dropped_once(ledger):
    def picky(body: dict[str, Any], _number: int) -> Say:
        for name in ("response_format", "seed", "max_tokens"):
            if name in body:
                return Say(f"Unsupported parameter: '{name}'", status=400)
        return Say(GOOD)

    with openai_endpoint(picky) as endpoint:
        llm = client(ledger, endpoint.url)
        replies = ask(llm), ask(llm, seed=7)
    assert [reply.value.word for (reply,) in replies] == ["heron", "heron"]
    assert len(endpoint.requests) == 4 + 1
    assert endpoint.requests[-1]["max_completion_tokens"] == 1024


def test_an_endpoint_that_is_down_is_named_and_not_asked_by_the_whole_batch(ledger):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        llm = client(ledger, url, attempts=1, concurrency=1)
        errors = []
        for seed in range(GIVE_UP_AFTER + 20):
            with pytest.raises(LLMError) as caught:
                ask(llm, seed=seed)
            errors.append(caught.value)
    assert {error.kind for error in errors} == {"endpoint_down"}
    assert url in errors[0].found
    assert "stopped" in errors[-1].found


def test_a_role_keeps_to_its_concurrency(ledger):
    with openai_endpoint([Say(GOOD, delay_s=0.02)]) as endpoint:
        ask(client(ledger, endpoint.url, concurrency=3), times=12)
    assert 1 < endpoint.most_at_once <= 3


def test_offline_is_a_provider_like_any_other(ledger):
    provider = Scripted()
    llm = LLM([Role("generator")], ledger, offline=provider)
    (first,), (second,) = ask(llm), ask(llm)
    assert (first.provider, first.model, first.usd) == ("offline", "offline:v1", 0.0)
    assert (second.cached, provider.asked) == (True, 1)
    ask(LLM([Role("generator")], ledger, offline=Scripted(version="v2")))
    assert ledger.counts() == {("llm:generator", "done"): 2}


def test_an_unknown_role_and_a_missing_provider_name_the_mend_and_no_key_is_printed(ledger):
    llm = LLM([Role("generator")], ledger)
    with pytest.raises(LLMError, match="an offline provider"):
        ask(llm)
    with pytest.raises(LLMError, match="one of generator"):
        llm.role("jduge")
    assert "sk-secret" not in repr(Role("generator", api_key="sk-secret"))


PARTS = json.dumps([{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}])


@cases(
    "content, word",
    ('"{\\"word\\": \\"\\ud83d\\", \\"count\\": 3}"', "?"),
    ('"{\\"word\\": \\"\\udc00 and more\\", \\"count\\": 3}"', "?"),
    (PARTS, "heron"),
    ids=["half a pair", "the other half", "in parts"],
)
def test_an_answer_with_half_a_surrogate_pair_or_in_parts_is_paid_once(ledger, content, word):
    raw = f'{{"choices": [{{"message": {{"content": {content}}}}}]}}'
    with openai_endpoint([Say(raw=raw)]) as endpoint:
        (first,) = ask(client(ledger, endpoint.url))
        (second,) = ask(client(ledger, endpoint.url))
    assert first.value == second.value
    assert first.value.word.startswith(word)
    assert len(endpoint.requests) == 1


@cases(
    "raw",
    "[]", "7", "null", "{}", '{"choices": []}', '{"choices": [null]}', '{"choices": [{}]}',
    '{"choices": [{"message": "x"}]}',
    '{"choices": [{"message": {"content": "{}"}}], "usage": {"prompt_tokens": "many"}}',
)  # fmt: skip
def test_a_response_of_another_shape_is_the_servers_fault(ledger, raw):
    with openai_endpoint([Say(raw=raw)]) as endpoint, pytest.raises(LLMError) as caught:
        ask(client(ledger, endpoint.url))
    assert caught.value.kind == "server_error"


# --- a turn with tools: paid once, read tolerantly, refused clearly
ASKED = [{"role": "user", "content": "What time is it in Oslo?"}]
PACKED_TWICE = gzip.compress(gzip.compress(bytes(60 << 20)))
TOOL = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}


def calling(*calls: tuple[str, Any], content: Any = None) -> Say:
    functions = [{"name": name, "arguments": inputs} for name, inputs in calls]
    held = [{"id": "x", "type": "function", "function": function} for function in functions]
    message = {"role": "assistant", "content": content, "tool_calls": held}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return Say(raw=json.dumps({"model": "m", "choices": [choice], "usage": usage}))


async def converse(
    endpoint: Endpoint, ledger: Ledger, tools: Any = (TOOL,), **role: Any
) -> ChatTurn:
    facts = {"usd_in": 1.0, "usd_out": 2.0, "attempts": 2, **role}
    actor = Role("actor", model="m", base_url=endpoint.url, **facts)
    chat = ChatClient(actor, ledger, stage="t", endpoint=OpenAIEndpoint(backoff_s=0.01))
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


PACKED = gzip.compress(str(answer_with().raw).encode())


@cases("say", answer_with(model="\ud800"), Say(raw=PACKED, headers={"content-encoding": "gzip"}))
async def test_half_a_pair_in_a_models_name_or_a_packed_answer_is_paid_once(ledger, say):
    with openai_endpoint([say]) as at:
        first, again = await converse(at, ledger), await converse(at, ledger)
    assert (len(at.requests), again.cached, first.text) == (1, True, "Noon.")


async def test_a_redirect_is_not_followed(ledger):
    with openai_endpoint([Say("Noon.")]) as other:
        away = Say("", 307, headers={"Location": f"{other.url}/chat/completions"})
        with openai_endpoint([away]) as at, pytest.raises(LLMError):
            await converse(at, ledger)
    assert other.requests == []


@cases("tool_calls", [{"function": None}], 7)
async def test_a_broken_response_is_asked_for_again(ledger, tool_calls):
    odd = Say(raw=json.dumps({"choices": [{"message": {"tool_calls": tool_calls}}]}))
    with openai_endpoint([odd, calling(content=[{"text": "No"}, {"text": "on."}])]) as at:
        assert (await converse(at, ledger)).text == "Noon."
    with openai_endpoint([odd]) as at, expect_kind(LLMError, "server_error"):
        await converse(at, ledger, tools=())


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


NAMES = st.text(max_size=100) | st.text("ab_-.:", max_size=90)


@given(NAMES, NAMES)
def test_every_tool_has_a_name_that_endpoints_take_and_no_other_tool_has(name, other):
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", write_wire_name(name))
    assert write_wire_name(name) == name or re.match("[a-zA-Z_]", write_wire_name(name))
    assert (write_wire_name(name) == write_wire_name(other)) == (name == other)


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


def test_what_is_cut_is_the_beginning_up_to_a_whole_word():
    wire_name = write_wire_name("https://" + "long." * 20 + "example/mcp::search_documents")
    assert wire_name.startswith("long_long_long_example_mcp__search_documents_")
    whole = write_wire_name("npm:@modelcontextprotocol/server-filesystem::read_multiple_files")
    assert whole.startswith("server-filesystem__read_multiple_files_")
