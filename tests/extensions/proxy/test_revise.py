"""A model rewrites what the ladder leaves: an endpoint of OpenAI's form, behind the proxy."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from extensions.proxy.app import ProxyParts
from extensions.proxy.calls import CallReviser, UpstreamReviser, guard_model, read_proposal
from serving.repair.tools import ProposedCall, RevisionRequest
from tests.extensions.proxy import upstream_script
from tests.support.cases import cases

ASK: Any = [{"role": "user", "content": "How is the weather, for a trip to Bonn or so?"}]
MISSING = '{"days": 2}'


@pytest.fixture(scope="module")
def asked() -> Iterator[tuple[upstream_script.Script, upstream_script.Running]]:
    """(the reviser's endpoint, the proxy)."""
    script = upstream_script.Script()
    with upstream_script.run_server(script) as port:
        reviser = CallReviser("big", UpstreamReviser(f"http://127.0.0.1:{port}/v1", "big"), 20.0)
        with upstream_script.run_proxied(parts=ProxyParts(reviser=reviser)) as running:
            yield script, running


def post(running: upstream_script.Running, **more: Any) -> httpx2.Response:
    body = {"model": "m", "messages": ASK, "tools": upstream_script.CHAT_TOOLS, **more}
    url, headers = f"{running.url}/v1/chat/completions", {"authorization": "Bearer sk-client"}
    return httpx2.post(url, json=body, headers=headers, trust_env=False)


def read_call(answer: httpx2.Response) -> Any:
    [call] = answer.json()["choices"][0]["message"]["tool_calls"]
    return json.loads(call["function"]["arguments"])


def test_only_what_the_ladder_leaves_is_asked(asked):
    script, running = asked
    script.seen.clear()
    script.body, running.script.parts = upstream_script.make_completion(upstream_script.VALID), None
    for call in (upstream_script.VALID, "{'city': 'Bonn',}"):
        running.script.body = upstream_script.make_completion(call)
        assert read_call(post(running))["city"] == "Bonn"
    assert not script.seen
    running.script.body = upstream_script.make_completion(MISSING)
    answer = post(running)
    assert read_call(answer) == {"city": "Bonn", "days": 2}
    [told] = answer.json()["toolmill"]["calls"]
    assert told["revised_by"] == "big"
    text = httpx2.get(f"{running.url}/metrics", trust_env=False).text
    assert 'toolmill_proxy_calls_revised_total{outcome="repaired"}' in text
    [(path, headers, sent)] = script.seen
    running.script.parts = upstream_script.stream_chat(MISSING)
    assert '"revised_by":"big"' in post(running, stream=True).text.replace(": ", ":")
    running.script.parts = None
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-client")
    assert [one["function"]["name"] for one in json.loads(sent)["tools"]] == ["weather"]
    assert "trip to Bonn" in json.loads(sent)["messages"][1]["content"]


@cases(
    "body, reason",
    (upstream_script.make_completion('{"city": "Atlantis", "days": 2}'), "made up 'city'"),
    (
        upstream_script.make_completion(upstream_script.VALID, name="drop_tables"),
        "a tool that is not there",
    ),
    (b'{"choices": []}', "IndexError"),
    (b"no JSON", "JSONDecodeError"),
)
def test_a_bad_answer_leaves_the_call(asked, body, reason):
    script, running = asked
    script.body, running.script.body = body, upstream_script.make_completion(MISSING)
    answer = post(running)
    assert read_call(answer) == {"days": 2}
    [told] = answer.json()["toolmill"]["calls"]
    assert told["asked"] == "big"
    assert reason in told["refused"]
    assert "missing" in told["left"][0] or "city" in told["left"][0]


def test_a_late_model_and_a_broken_one_cost_their_own_time(asked):
    script, running = asked
    parts = running.proxy._answering._parts
    assert parts.reviser is not None
    late = ProxyParts(reviser=replace(parts.reviser, timeout_s=0.2))
    script.body, script.delay_s = upstream_script.make_completion(upstream_script.VALID), 1.5
    with upstream_script.run_proxied(parts=late) as impatient:
        impatient.script.body = upstream_script.make_completion(MISSING)
        answer = post(impatient)
    script.delay_s = 0.0
    assert read_call(answer) == {"days": 2}
    [told] = answer.json()["toolmill"]["calls"]
    assert told["refused"] == "no answer in 0.2 s"
    running.script.body = upstream_script.make_completion(MISSING)
    script.status = 500
    [told] = post(running).json()["toolmill"]["calls"]
    script.status = 200
    assert "HTTPStatusError" in told["refused"]
    assert not any(one in json.dumps(told) for one in ("sk-client", "127.0.0.1"))
    text = httpx2.get(f"{running.url}/metrics", trust_env=False).text
    assert 'toolmill_proxy_calls_revised_total{outcome="left"}' in text


OWN = {"authorization": "Bearer sk-client", "x-api-key": "sk-client"}
SET = {"openai-project": "p", "x-gateway-route": "blue"}
SENT = {"Authorization": "Bearer sk-client", "x-api-key": "sk-client", **SET}
SENT |= {"content-type": "text/odd", "accept": "text/event-stream", "idempotency-key": "one"}


@pytest.mark.parametrize(
    ("key", "passed"), [("", OWN | SET), ("sk-own", SET | {"authorization": "Bearer sk-own"})]
)
def test_the_model_gets_the_clients_headers_but_those_of_its_request(key, passed):
    script = upstream_script.Script()
    with upstream_script.run_server(script) as port:
        opened = UpstreamReviser(f"http://127.0.0.1:{port}/v1", "big", key)
        script.body = upstream_script.make_completion(upstream_script.VALID)
        opened([(n.encode(), v.encode()) for n, v in SENT.items()])(
            RevisionRequest([], [], "weather", {}, [])
        )
    [(_, headers, _)] = script.seen
    watched = OWN | SET | {"idempotency-key": ""}
    assert {name: value for name, value in headers.items() if name in watched} == passed
    assert headers["content-type"] == "application/json"
    assert "event-stream" not in headers.get("accept", "")


def test_no_client_is_told_the_operators_key():
    """As it is read from a file, with the end of its line, which no header may hold."""
    with upstream_script.run_server(upstream_script.Script()) as port:
        opened = UpstreamReviser(f"http://127.0.0.1:{port}/v1", "big", "sk-operator\n")
        with upstream_script.run_proxied(
            parts=ProxyParts(reviser=CallReviser("big", opened))
        ) as running:
            running.script.body = upstream_script.make_completion(MISSING)
            answer = post(running)
    [told] = answer.json()["toolmill"]["calls"]
    assert told["asked"] == "big"
    assert "refused" in told
    assert "sk-operator" not in answer.text


def test_a_model_that_runs_here_revises_one_draft_at_a_time():
    at_once, most = [], []

    def revise(request: RevisionRequest) -> ProposedCall:
        at_once.append(request)
        most.append(len(at_once))
        threading.Event().wait(0.01)
        at_once.pop()
        return ProposedCall("weather", {})

    opened = guard_model(revise)
    request: Any = RevisionRequest([], [], "weather", {}, [])
    threads = [threading.Thread(target=opened([]), args=(request,)) for _ in range(4)]
    for act in (threading.Thread.start, threading.Thread.join):
        for one in threads:
            act(one)
    assert most == [1] * 4


def test_what_a_message_proposes_and_asks(asked):
    function = {"name": "weather", "arguments": "{'city': 'Bonn'}"}
    made = read_proposal({"tool_calls": [{"id": "a", "type": "function", "function": function}]})
    assert made is not None
    assert (made.name, made.arguments) == ("weather", {"city": "Bonn"})
    assert read_proposal({"content": "Done."}) is None
    assert read_proposal({}) is None
    script, running = asked
    message = {"role": "assistant", "content": "Which city do you mean?"}
    script.body = json.dumps({"choices": [{"message": message}]}).encode()
    running.script.body = upstream_script.make_completion(MISSING)
    [told] = post(running).json()["toolmill"]["calls"]
    assert told["left"] == ["missing_value: Which city do you mean?"]
