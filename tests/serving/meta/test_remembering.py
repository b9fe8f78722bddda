"""What the log keeps of searches: nothing of their words without opt-in, and what is said of it."""

import base64
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from assets.outcomes.trace_files import read_traces
from assets.servers.calls.log import clean_words, query_digest
from serving.meta.call_tool import call_tool
from serving.meta.consent import ConsentClient
from serving.meta.context import MetaContext
from serving.meta.find_tools import find_tools
from serving.meta.handlers import report_outcome
from serving.meta.policy import LOCAL, ClientToken
from tests.serving import meta_server
from tests.serving.meta_server import ERAS, KEY, MetaServer, http_client, over_http, read_text
from tests.support.cases import cases

QUERY = "tell the hour in a city"
CALL = {"tool_id": "pypi:clock::get_time", "arguments": {"city": "Oslo"}}


def open_meta(place: Any, **local: Any) -> MetaServer:
    return meta_server.open_meta(place, local=replace(LOCAL, **local))


async def search_and_call(client: Any) -> tuple[str, str]:
    result = await client.call_tool("find_tools", {"query": QUERY, "k": 3})
    assert not result.is_error
    call = await client.call_tool("call_tool", CALL)
    given = {"call_id": call.structured_content["call_id"], "outcome": "worked"}
    reported = await client.call_tool("report_outcome", given)
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    return read_text(reported), str(tools["report_outcome"].description)


def read_log(meta: MetaServer) -> str:
    return "".join(path.read_text() for path in meta.outcomes.list_files())


@pytest.mark.parametrize("mode", ERAS)
async def test_without_opt_in_a_search_leaves_nothing_and_a_call_a_digest(tmp_path, mode):
    meta = open_meta(tmp_path, remember="digest")
    async with meta.client(mode) as client:
        answer = await search_and_call(client)
    called, reported = meta.recorded
    assert (called["query"], reported["query"]) == (query_digest(QUERY),) * 2
    private = {"words", "vector", "shown", "rank", "client", "search_id"}
    assert not {*called, *reported} & private
    assert "hour" not in read_log(meta)
    assert all("of queries only a digest" in text for text in answer)


@pytest.mark.parametrize("mode", ERAS)
async def test_who_opts_in_has_words_and_what_was_shown_and_picked_kept(tmp_path, mode):
    meta = open_meta(tmp_path, remember="text")
    async with meta.client(mode) as client:
        answer = await search_and_call(client)
    searched, called, reported = meta.recorded
    asked = (searched["status"], searched["words"], searched["token"])
    assert asked == ("searched", QUERY, "local")
    assert (searched["shown"][called["rank"] - 1], len(searched["shown"])) == (CALL["tool_id"], 3)
    assert searched["client"]
    for line in (called, reported):
        assert (line["search_id"], line["client"]) == (searched["search_id"], searched["client"])
    assert "Oslo" not in read_log(meta)
    assert all("the words of every query and what it showed" in text for text in answer)


async def test_a_vector_is_kept_in_place_of_words(tmp_path):
    meta = open_meta(tmp_path, remember="vector")
    async with meta.client() as client:
        await search_and_call(client)
    searched = meta.recorded[0]
    assert "words" not in searched
    assert "hour" not in read_log(meta)
    vector = np.frombuffer(base64.b64decode(searched["vector"]), "<f2").astype(np.float32)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=0.01)
    assert searched["embedder"]


async def test_a_key_in_a_query_or_call_is_in_no_line_and_no_trace(tmp_path):
    meta = open_meta(tmp_path, remember="text", traces=True)
    async with meta.client() as client:
        await client.call_tool("find_tools", {"server": "a clock", "tool": f"hour {KEY}"})
        await client.call_tool("find_tools", {"query": f"{QUERY} {KEY}", "k": 3})
        await client.call_tool("call_tool", CALL)
        await client.call_tool("call_tool", {**CALL, "arguments": {"city": KEY}})
    assert meta.recorded[0]["words"].startswith("a clock\nhour")
    assert meta.recorded[1]["words"] == clean_words(f"{QUERY} {KEY}") != f"{QUERY} {KEY}"
    first, *_ = meta.outcomes.traces.read()
    assert first["words"] == clean_words(f"{QUERY} {KEY}")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


async def test_tokens_opt_in_one_by_one(meta):
    secrets = {"ann": "a" * 40, "bo": "b" * 40}
    tokens = tuple(
        ClientToken(name, sha256(secret.encode()).hexdigest(), remember=remember)
        for (name, secret), remember in zip(secrets.items(), ("text", "digest"), strict=True)
    )
    async with over_http(meta, tokens=tokens) as url:
        for secret in secrets.values():
            async with http_client(url, secret) as client:
                await client.call_tool("find_tools", {"query": QUERY})
    assert [(line["token"], line["words"]) for line in meta.recorded] == [("ann", QUERY)]


async def test_a_line_names_the_client_that_asked_and_a_note_holds_no_key(tmp_path):
    """Two clients of one token: what one searched is not laid to the other."""
    meta = open_meta(tmp_path, remember="text")
    desk = MetaContext(meta_server.served(tmp_path), meta.caller, meta.policy, meta.outcomes)
    token = meta.policy.local
    given = {"tool_id": CALL["tool_id"], "outcome": "failed", "note": f"refused {KEY}"}
    await find_tools(desk, token, {"query": QUERY}, "editor 1")
    await call_tool(desk, token, CALL, ConsentClient(None, None, None), "shell 2")
    await report_outcome(desk, token, given, "shell 2")
    assert [line["client"] for line in meta.recorded] == ["editor 1", "shell 2", "shell 2"]
    assert [line.get("query") for line in meta.recorded] == [query_digest(QUERY), None, None]
    assert [line for line in meta.recorded if "search_id" in line] == meta.recorded[:1]
    assert KEY not in read_log(meta)


async def test_each_of_several_requests_is_a_search_of_its_own(tmp_path):
    meta = open_meta(tmp_path, remember="text")
    async with meta.client() as client:
        requests = [{"query": QUERY}, {"query": "read one text file"}]
        await client.call_tool("find_tools", {"requests": requests, "k": 2})
        await client.call_tool("find_tools", {"query": "x" * 9000})
    lines = meta.recorded
    assert [line["words"] for line in lines[:2]] == [QUERY, "read one text file"]
    assert len({line["search_id"] for line in lines}) == 3
    assert len(lines[2]["words"]) <= 4000


@cases("traces", False, True)
async def test_calls_are_kept_whole_only_of_a_token_that_opted_in(tmp_path, traces):
    meta = open_meta(tmp_path, traces=traces)
    async with meta.client() as client:
        _, described = await search_and_call(client)
    lines = list(meta.outcomes.traces.read())
    assert ("every call with its arguments" in described) is traces
    assert len(lines) == traces
    assert "Oslo" not in read_log(meta)
    if traces:
        [line] = lines
        assert (line["token"], line["words"]) == (LOCAL.name, QUERY)
        assert (line["tool_id"], line["arguments"]) == (CALL["tool_id"], CALL["arguments"])
        [trace] = read_traces(meta.outcomes.traces.list_files()[0]).sessions
        assert [event.kind for event in trace.events] == ["user", "call", "result"]
        assert trace.user == LOCAL.name
