"""The client against a real endpoint on loopback, through the real `openai` SDK."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from warehouse.ledger.ledger import Ledger
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
from warehouse.storage.blobs import Blobs

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


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "ledger.db", Blobs(tmp_path / "blobs"))


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
        with pytest.raises(LLMError, match="raise max_tokens"):
            ask(client(ledger, endpoint.url, max_tokens=16))
        with pytest.raises(LLMError, match="raise max_tokens"):
            ask(client(ledger, endpoint.url, max_tokens=16))
        assert len(endpoint.requests) == 2
        (reply,) = ask(client(ledger, endpoint.url, max_tokens=100))
        assert reply.value.word == "heron"
        assert len(endpoint.requests) == 3
        ask(client(ledger, endpoint.url, max_tokens=100))
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
    (first,) = ask(llm)
    (second,) = ask(llm)
    assert (first.provider, first.model, first.usd) == ("offline", "offline:v1", 0.0)
    assert second.cached
    assert provider.asked == 1
    ask(LLM([Role("generator")], ledger, offline=Scripted(version="v2")))
    assert ledger.counts() == {("llm:generator", "done"): 2}


def test_an_unknown_role_and_a_missing_provider_name_the_mend(ledger):
    llm = LLM([Role("generator")], ledger)
    with pytest.raises(LLMError, match="an offline provider"):
        ask(llm)
    with pytest.raises(LLMError, match="one of generator"):
        llm.role("jduge")


def test_a_role_does_not_print_its_key():
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
