"""The proxy before broken upstreams, slow clients and requests beyond its limits."""

import json
import socket
import threading
import time
from typing import Any

import httpx2
import pytest

from assets.contracts.rename_history import ContractHistory, ContractMove
from extensions.proxy import calls, chat_calls
from extensions.proxy.calls import CallRepair, ToolOffer, fix_call, read_offer
from extensions.proxy.upstream import ProxyError, ProxySettings, make_listening
from tests.extensions.proxy.upstream_script import (
    BROKEN,
    CHAT_TOOLS,
    VALID,
    Script,
    make_completion,
    run_proxied,
    run_server,
    stream_chat,
)
from tests.support.cases import cases

SECRET = "a-secret-of-more-than-20"


def offer(tools: Any = CHAT_TOOLS) -> ToolOffer:
    found = read_offer({"tools": tools}, 10)
    assert found is not None
    return found


def post(url: str, tools: Any = CHAT_TOOLS, **options: Any) -> httpx2.Response:
    body = {"model": "m", "messages": [], "tools": tools}
    with httpx2.Client(trust_env=False, timeout=90) as client:
        return client.post(f"{url}/v1/chat/completions", json=body, **options)


def read_code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@cases(
    "text, fits",
    ('"{\\"city\\": \\"Bonn\\"}"', True),  # encoded twice
    ('{"city": "Bonn", /* two */ "days": 2}', True),
    ('{"arguments": {"city": "Bonn"}}', True),
    ('{"city": "Bonn", "days": NaN}', True),
    ('{"city": "Bonn"}{"city": "Rome"}', False),  # which one was meant?
    ("{'city': 'Bonn'}, {'city': 'Rome'}", False),
    ("{'city': 'Bonn'} {'city': 'Rome'}", False),
    ('{"days": 2}', False),  # no city is invented
    ("", False),
    ("[" * 100_000, False),
)
def test_a_call_is_changed_only_where_it_then_fits(text, fits):
    fixed = fix_call(offer(), None, "weather", text)
    assert bool(fixed.steps) is fits
    assert json.loads(fixed.text)["city"] == "Bonn" if fits else fixed.text == text and fixed.left


@cases(
    "given, text",
    ({"city": "Bonn", "days": "2"}, '{"city": "Bonn", "days": 2}'),
    ({"city": "Bonn"}, '{"city": "Bonn"}'),
    (None, None),  # a city is missing
)
@pytest.mark.parametrize("legacy", [False, True])
async def test_arguments_of_a_whole_answer_are_text(given, text, legacy):
    call: Any = {"name": "weather", "arguments": given}
    message = {"function_call": call} if legacy else {"tool_calls": [{"function": call}]}
    repair = CallRepair(offer())
    await chat_calls.repair_chat({"choices": [{"message": message}]}, repair)
    assert (call["arguments"], len(repair.notes)) == (text, 1)


async def test_a_call_that_takes_too_long_is_left_and_a_changed_name_is_read(monkeypatch):
    history = ContractHistory((ContractMove("sky", "weather", "forecast"),))
    fixed = fix_call(offer(), history, "forecast", VALID)
    assert (fixed.name, json.loads(fixed.text)) == ("weather", json.loads(VALID))
    assert fix_call(offer(), None, "forecast", VALID).left.startswith("unknown_tool")
    bare: Any = {"type": "function", "function": {"name": "now"}}
    found = offer([bare, *CHAT_TOOLS])
    assert found.unjudged == {"now"}
    assert [candidate.name for candidate in found.toolset.candidates] == ["weather"]
    assert read_offer({"tools": [{"type": "web_search"}]}, 10) is None
    monkeypatch.setattr(calls, "LADDER_S", 0.05)
    monkeypatch.setattr(calls, "fix_call", lambda *_: time.sleep(0.5))
    fixed = await CallRepair(offer()).fix_call("c", "weather", BROKEN, cut=False)
    assert (fixed.text, fixed.left.partition(":")[0]) == (BROKEN, "too_large")


def test_what_was_cut_is_not_completed_and_much_of_it_passes():
    with run_proxied() as running:
        long = json.dumps({"city": "x" * 1_000_000, "days": "2"})
        running.script.body = make_completion(long)
        [call] = post(running.url).json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "x" * 1_000_000, "days": 2}
        running.script.body = make_completion(VALID)
        tools = [
            {"type": "function", "function": {"name": f"t{at}", "parameters": {"type": "object"}}}
            for at in range(9_999)
        ]
        assert post(running.url, [*CHAT_TOOLS, *tools]).content == running.script.body
        assert read_code(post(running.url, [*tools, *tools])) == (400, "too_many_tools")
        cut = BROKEN[:15]
        running.script.body = make_completion(cut, finish="length")
        answer = post(running.url)
        [call] = answer.json()["choices"][0]["message"]["tool_calls"]
        assert call["function"]["arguments"] == cut
        assert "left" in answer.json()["toolmill"]["calls"][0]
        running.script.parts = stream_chat(BROKEN)[:-3]
        assert post(running.url).content == b"".join(running.script.parts)
        running.script.broken = True
        told = post(running.url).content
        assert told.startswith(b"".join(running.script.parts))
        assert b"upstream_broken" in told.removeprefix(b"".join(running.script.parts))


def test_an_upstream_that_is_late_gone_redirects_or_is_behind_a_proxy(monkeypatch):
    with run_proxied(timeout_s=0.2) as running:
        running.script.delay_s = 1
        assert read_code(post(running.url)) == (504, "upstream_timeout")
        running.script.delay_s = 0
        running.script.status, running.script.headers = 307, {"location": "http://127.0.0.1:9/"}
        assert read_code(post(running.url)) == (502, "upstream_redirect")
    with socket.socket() as deaf:  # bound, so that nobody else gets the port, and not listening
        deaf.bind(("127.0.0.1", 0))
        with run_proxied(upstream=f"http://127.0.0.1:{deaf.getsockname()[1]}") as running:
            assert read_code(post(running.url)) == (502, "upstream_refused")
    script = Script(parts=stream_chat(BROKEN))
    with run_server(script) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with run_proxied(upstream="http://api.example/v1") as running:
            assert b'"repaired": 1' in post(running.url).content.replace(b'":', b'": ')
    [(path, headers, _)] = script.seen
    assert (path, headers["host"]) == ("/v1/chat/completions", "api.example")


def test_limits_of_bodies_and_of_open_requests():
    with run_proxied(max_body=2_000, max_open=1) as running:
        assert read_code(post(running.url, CHAT_TOOLS * 20)) == (413, "body_too_large")
        running.script.delay_s = 0.6
        first = threading.Thread(target=post, args=[running.url])
        first.start()
        _wait_open(running.proxy, 1)
        answer = post(running.url)
        assert (*read_code(answer), answer.headers["retry-after"]) == (503, "too_many_open", "1")
        first.join()
        running.script.delay_s = 5
        # A client that closes its side, or never sends its body, does not keep its place.
        with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2]))) as half:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
            half.sendall(head + b"2\r\n\r\n{}")
            _wait_open(running.proxy, 1)
            half.shutdown(socket.SHUT_WR)
            _wait_open(running.proxy, 0)


def _wait_open(proxy: Any, wanted: int) -> None:
    ends = time.monotonic() + 60
    while proxy.metrics.open != wanted:
        assert time.monotonic() < ends, f"{proxy.metrics.open} open, not {wanted}"
        time.sleep(0.01)


def test_a_token_is_asked_for_and_not_sent_on(caplog):
    with run_proxied(token=SECRET, key="sk-upstream") as running:
        running.script.body = make_completion(VALID)
        assert read_code(post(running.url)) == (401, "invalid_token")
        assert not running.script.seen
        assert post(running.url, headers={"authorization": f"Bearer {SECRET}"}).status_code == 200
        assert running.script.seen[-1][1]["authorization"] == "Bearer sk-upstream"
        headers = {"x-toolmill-token": SECRET, "authorization": "Bearer other"}
        assert post(running.url, headers=headers).status_code == 200
        assert SECRET not in str(running.script.seen)
    assert SECRET not in caplog.text
    assert "sk-upstream" not in caplog.text + repr(ProxySettings("http://localhost", "sk-upstream"))


def test_foreign_pages_and_paths_are_refused_and_unusable_options_say_the_fix():
    with run_proxied() as running:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            assert read_code(post(running.url, headers=headers)) == (403, "foreign_page")
        assert not running.script.seen
        answer = httpx2.get(f"{running.url}/v1/%2e%2e/admin", trust_env=False)
        assert read_code(answer) == (404, "not_found")
    with pytest.raises(ProxyError, match="give --token"):
        make_listening("0.0.0.0", 0, "", 1)
    with pytest.raises(ProxyError, match="at least 20"):
        make_listening("127.0.0.1", 0, "short", 1)
    for wrong in ("localhost:1", "ftp://x", "http://u:p@x", "http://x/v1?key=1"):
        with pytest.raises(ProxyError, match="--upstream"):
            ProxySettings(wrong)
