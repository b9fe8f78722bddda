"""A local model behind the proxy, under the real `openai` SDK; a scripted model in its place."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from assets.contracts.validate import validate_call
from extensions.proxy.app import ProxyApp, ProxyParts
from extensions.proxy.local_caller import LocalCaller, make_question
from extensions.proxy.local_forms import CannotAnswer, LocalAnswer, LocalRequest
from extensions.proxy.local_upstream import LocalUpstream
from extensions.proxy.upstream import ProxyError, ProxySettings, UpstreamFailed, make_listening
from tests.extensions.proxy import upstream_script
from tests.support.cases import cases
from tests.training.conftest import raw_tool
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.predictor import PredictionAnswer

FIXED = {"city": "Bonn", "days": 2}
ASK: Any = [{"role": "user", "content": "weather in Bonn?"}]


@dataclass
class ScriptedModel:
    """Answers what it is told to; `gate` holds it until it is set."""

    label: str = "scripted"
    made: LocalAnswer = field(default_factory=lambda: LocalAnswer("sunny", (), 7, 2))
    error: str = ""
    seen: list[LocalRequest] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    ended_early: int = 0

    def answer(self, request: LocalRequest, is_over: Callable[[], bool]) -> LocalAnswer:
        self.seen.append(request)
        while not self.gate.wait(0.01):
            if is_over():
                self.ended_early += 1
                return self.made
        if self.error:
            raise CannotAnswer(self.error)
        return self.made


@pytest.fixture(scope="module")
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture(scope="module")
def url(model: ScriptedModel) -> Iterator[str]:
    listening = make_listening("127.0.0.1", 0, "", 1_000_000)
    parts = ProxyParts(local=LocalUpstream(model, 1))
    with upstream_script.run_server(ProxyApp(ProxySettings(), listening, parts), listening) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(url: str, model: ScriptedModel) -> Iterator[OpenAI]:
    model.made, model.error, model.ended_early = LocalAnswer("sunny", (), 7, 2), "", 0
    model.gate.set()
    model.seen.clear()
    with OpenAI(base_url=f"{url}/v1", api_key="sk-none", max_retries=0) as one:
        yield one


def call(text: Any = upstream_script.BROKEN) -> LocalAnswer:
    return LocalAnswer("", ({"name": "weather", "arguments": text},), 7, 9)


def test_words_whole_and_streamed_and_calls_climb_the_ladder(client, model):
    answer = client.chat.completions.create(model="any", messages=ASK)
    assert (answer.model, answer.choices[0].message.content) == ("scripted", "sunny")
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage and answer.usage.total_tokens) == 9
    options: Any = {"include_usage": True}
    asked: Any = {"model": "any", "messages": ASK, "stream": True, "stream_options": options}
    chunks = list(client.chat.completions.create(**asked))
    words = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert ("".join(words), chunks[-1].usage and chunks[-1].usage.prompt_tokens) == ("sunny", 7)
    assert client.models.list().data[0].id == "scripted"
    model.made = call()
    answer = client.chat.completions.create(
        model="m", messages=ASK, tools=upstream_script.CHAT_TOOLS
    )
    [made] = answer.choices[0].message.tool_calls or ()
    assert made.type == "function"
    assert (made.id[:5], json.loads(made.function.arguments)) == ("call_", FIXED)
    assert answer.choices[0].finish_reason == "tool_calls"
    with client.chat.completions.stream(
        model="m", messages=ASK, tools=upstream_script.CHAT_TOOLS
    ) as stream:
        for _ in stream:
            continue
        [made] = stream.get_final_completion().choices[0].message.tool_calls or ()
    assert json.loads(made.function.arguments) == FIXED


def test_the_responses_api_whole_and_streamed(client, model):
    assert client.responses.create(model="m", input="hi").output_text == "sunny"
    model.made = call({"city": "Bonn", "days": 2})
    given: Any = [
        *ASK,
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "X"}'},
        {"type": "function_call_output", "call_id": "c", "output": "rain"},
    ]
    with client.responses.stream(
        model="m", input=given, instructions="brief", tools=upstream_script.TOOLS
    ) as all_:
        kinds = [one.type for one in all_]
        [item] = all_.get_final_response().output
    assert item.type == "function_call"
    assert json.loads(item.arguments) == FIXED
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    read = [(message["role"], message["content"]) for message in model.seen[-1].messages]
    assert read == [("system", "brief"), ("user", "weather in Bonn?"), ("assistant", ""),
                    ("tool", "rain")]  # fmt: skip
    function = model.seen[-1].messages[2]["tool_calls"][0]["function"]
    assert function == {"name": "weather", "arguments": {"city": "X"}}


def test_a_choice_of_tools_and_a_limit_are_kept(client, model):
    other: Any = {"type": "function", "function": {"name": "b", "parameters": {"type": "object"}}}
    tools = [*upstream_script.CHAT_TOOLS, other]
    named: Any = {"type": "function", "function": {"name": "b"}}
    choices: Any = (
        (named, ["b"], True),
        ("required", ["weather", "b"], True),
        ("none", [], False),
        ("auto", ["weather", "b"], False),
        ({"type": "function", "function": "weather"}, ["weather", "b"], False),  # names nothing
    )
    for choice, names, must in choices:
        client.chat.completions.create(
            model="m", messages=ASK, tools=tools, tool_choice=choice, max_completion_tokens=5
        )
        assert [contract["name"] for contract in model.seen[-1].contracts] == names
        assert model.seen[-1].must_call is must
    assert model.seen[-1].most_tokens == 5
    model.made = LocalAnswer("sun", (), 7, 5, cut=True)
    cut = client.chat.completions.create(model="m", messages=ASK)
    assert cut.choices[0].finish_reason == "length"


CHOOSES_X: Any = {"tools": upstream_script.CHAT_TOOLS, "tool_choice": {"function": {"name": "x"}}}


@cases(
    "body, reason",
    ({"messages": "hi"}, "`messages` is no list"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "neither the user nor a tool"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "role 'robot'"),
    ({"messages": ASK, "n": 2}, "ask n=1"),
    ({"messages": ASK, "tool_choice": "required"}, "no function is offered"),
    ({"messages": ASK, **CHOOSES_X}, "no function 'x' is offered"),
    ({"messages": ASK, "max_tokens": -1}, "above 0"),
    ({"messages": [{"role": "tool", "tool_calls": 5}, {"role": "x"}]}, "role 'x'"),
    ([], "no JSON object"),
)
def test_what_it_cannot_be_asked_is_told(url, body, reason):
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, trust_env=False)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]


def test_what_the_model_refuses_and_other_paths(client, model):
    model.error = "the tools do not fit its context"
    for streamed in (False, True):
        with pytest.raises(BadRequestError, match="do not fit its context"):
            list(client.chat.completions.create(model="m", messages=ASK, stream=streamed))
    with pytest.raises(BadRequestError, match="keeps no answers"):
        client.responses.create(model="m", input="hi", previous_response_id="r")
    with pytest.raises(NotFoundError, match="nothing else"):
        client.embeddings.create(model="m", input="x")


async def test_one_is_answered_one_waits_more_are_refused():
    model = ScriptedModel()
    local, body = LocalUpstream(model, waiting=1), {"messages": ASK}
    done: list[Any] = []

    async def ask() -> None:
        done.append(await local.write_answer("/chat/completions", body))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(UpstreamFailed, match="1 requests wait") as refused:
            await local.write_answer("/chat/completions", body)
        model.gate.set()
    assert (refused.value.status, len(done), len(model.seen)) == (503, 2, 2)


def test_a_client_that_leaves_ends_its_answer(client, model):
    model.gate.clear()
    url = f"{client.base_url}chat/completions"
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(url, json={"messages": ASK}, trust_env=False, timeout=0.3)
    for _ in range(1000):
        if model.ended_early:
            break
        threading.Event().wait(0.01)
    assert model.ended_early == 1
    model.gate.set()
    assert client.chat.completions.create(model="m", messages=ASK).choices


def test_the_first_call_is_local_and_the_rest_is_not():
    with pytest.raises(ProxyError, match="neither --upstream nor --local"):
        ProxyApp(ProxySettings(), make_listening("127.0.0.1", 0, "", 1000))
    model = ScriptedModel(made=call())
    model.gate.set()
    with upstream_script.run_proxied(parts=ProxyParts(local=LocalUpstream(model))) as running:
        running.script.body = upstream_script.make_completion('{"city": "Oslo"}')
        with OpenAI(base_url=f"{running.url}/v1", api_key="k", max_retries=0) as client:

            def ask(messages: Any, **more: Any) -> Any:
                return client.chat.completions.create(
                    model="m", messages=messages, tools=upstream_script.CHAT_TOOLS, **more
                )

            first = ask(ASK)
            assert (first.model, running.script.seen) == ("scripted", [])
            assert first.model_extra["toolmill"]["first_call"] == "scripted"
            assert json.loads(first.choices[0].message.tool_calls[0].function.arguments) == FIXED
            assert list(ask(ASK, stream=True))[-1].model_extra["toolmill"]["repaired"] == 1
            turn = first.choices[0].message.model_dump(exclude_none=True)
            result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "x"}
            assert ask([*ASK, turn, result]).model == "m"
            model.made = call('{"days": 2}')  # the city is missing: the upstream is asked
            said: Any = [{"role": "user", "content": "weather?"}]
            assert ask(said).model == "m"
            model.made = LocalAnswer("no idea")
            assert ask(said).model == "m"
            model.error = "too long"
            assert ask(said).model == "m"
        asked = {"messages": [{"role": ["user"]}], "tools": upstream_script.CHAT_TOOLS}
        odd = httpx2.post(f"{running.url}/v1/chat/completions", json=asked, trust_env=False)
        assert odd.json()["model"] == "m", "what it makes of a role that is none is its own"
        assert len(running.script.seen) == 5
        text = httpx2.get(f"{running.url}/metrics", trust_env=False).text
    for outcome, count in (("written", 2), ("later", 2), ("unfit", 1), ("none", 1), ("failed", 1)):
        assert f'toolmill_proxy_first_calls_total{{outcome="{outcome}"}} {count}' in text


@pytest.mark.parametrize("streamed", [False, True])
def test_half_a_surrogate_pair_passes(url, client, streamed):
    assert client
    asked = {"model": "m", "input": "?", "instructions": "\ud83d", "stream": streamed}
    answer = httpx2.post(f"{url}/v1/responses", content=json.dumps(asked), trust_env=False)
    assert (answer.status_code, "\\ud83d" in answer.content.decode()) == (200, True)


CONTRACTS = [raw_tool("find", "file"), raw_tool("make", "file")]
ASKED = {"role": "user", "content": "Please find 3 files called 'Blue Sky'."}


@pytest.fixture(scope="module")
def caller(small_caller: Path) -> LocalCaller:
    return LocalCaller(AdapterPredictor(Path("."), small_caller, device="cpu", constrained=True))


def test_a_call_is_written_up_to_a_limit_by_its_grammar_or_without(caller, small_caller):
    made = caller.answer(LocalRequest([ASKED], CONTRACTS), lambda: False)
    assert made.calls
    assert {call["name"] for call in made.calls} <= {"find_file", "make_file"}
    assert (made.text, made.cut) == ("", False)
    assert made.prompt_tokens > 20
    assert made.completion_tokens > 3
    cut = caller.answer(LocalRequest([ASKED], CONTRACTS, most_tokens=2), lambda: False)
    assert (cut.cut, cut.completion_tokens) == (True, 2)
    assert caller.answer(LocalRequest([ASKED], CONTRACTS), lambda: True).completion_tokens <= 2
    caller = LocalCaller(AdapterPredictor(Path("."), small_caller, device="cpu"))
    made = caller.answer(LocalRequest([ASKED], CONTRACTS[1:], must_call=True), lambda: False)
    assert [call["name"] for call in made.calls] == ["make_file"]
    assert validate_call(CONTRACTS[1], made.calls[0]["arguments"]) == []
    silent: Any = SimpleNamespace(
        label="", predict=lambda *_: [PredictionAnswer([], "no_call", "hm")]
    )
    with pytest.raises(CannotAnswer, match="wrote no call"):
        LocalCaller(silent).answer(LocalRequest([ASKED], CONTRACTS, must_call=True), lambda: False)


def test_a_conversation_goes_on_as_long_as_it_fits(caller):
    arguments = {"title": "Blue Sky", "count": 3}
    function = {"name": "find_file", "arguments": arguments}
    turn: Any = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    result = {"role": "tool", "content": "[]"}
    messages = [ASKED, turn, result, {**ASKED, "content": "Make 2 then."}]
    asked = make_question(LocalRequest(messages, CONTRACTS))
    assert (asked.instruction, asked.keep) == ("Make 2 then.", {"find_file"})
    assert asked.before[1]["weight"] == 0
    assert caller.answer(LocalRequest(messages, CONTRACTS), lambda: False).prompt_tokens > 40
    with pytest.raises(CannotAnswer, match="do not fit the model's context"):
        caller.answer(
            LocalRequest([{**ASKED, "content": "word " * 9000}], CONTRACTS), lambda: False
        )
    untrained = LocalCaller(BaselinePredictor()).answer(
        LocalRequest([ASKED], CONTRACTS), lambda: False
    )
    assert untrained.calls[0]["name"] == "find_file"
