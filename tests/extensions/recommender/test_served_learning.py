"""Learning while it serves: the meta-server's own calls and reports change what it shows."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.result import CallResult
from serving.meta.policy import LOCAL, MetaPolicy
from tests.serving.meta_server import ERAS, MetaServer, read_text, text
from tests.support.online import BAD, GOOD, QUERY, publish_ranked


class Turned:
    """A caller at which the good tools fail now."""

    async def call(
        self, server_id: str, tool: str, contract: Mapping[str, Any],
        arguments: Mapping[str, Any], *, timeout_s: float, owner: str,
    ) -> CallResult:  # fmt: skip
        if server_id == "npm:good":
            return text("out of order", status="tool_error", blame="tool")
        return text("done")

    async def close(self) -> None:
        pass


def open_meta(place: Path, remember: Any = "text", learn: bool = True) -> MetaServer:
    publish_ranked(place)
    policy = MetaPolicy(
        poll_s=0.02,
        consent="always",
        local=replace(LOCAL, remember=remember),
        learning=ReliabilityPolicy() if learn else None,
    )
    meta = MetaServer(place, policy)
    meta.caller = Turned()  # type: ignore[assignment]
    return meta


async def list_hits(client: Client) -> list[dict[str, Any]]:
    found = await client.call_tool("find_tools", {"query": QUERY, "k": 4})
    return found.structured_content["answers"][0]["hits"]


async def find_first(client: Client) -> str:
    return (await list_hits(client))[0]["tool_id"]


async def find_odds(client: Client, tool_id: str) -> float:
    return {hit["tool_id"]: hit["score"] for hit in await list_hits(client)}[tool_id]


async def use(client: Client, tool_id: str) -> str:
    """The id of a call of a tool that a search showed."""
    await find_first(client)
    called = await client.call_tool("call_tool", {"tool_id": tool_id})
    return called.structured_content["call_id"]


async def read_learnt(client: Client) -> int | None:
    [content] = (await client.read_resource("toolmill://index")).contents
    return json.loads(content.model_dump()["text"])["reranker"]["learnt_since"]


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_that_fail_and_reports_change_the_next_search(
    tmp_path: Path, mode: str
) -> None:
    meta = open_meta(tmp_path)
    async with meta.client(mode) as client:
        assert await find_first(client) == GOOD
        calls = []
        for _ in range(12):
            await use(client, GOOD)
            calls.append(await use(client, BAD))
        with anyio.fail_after(60):
            while await find_first(client) == GOOD:
                await anyio.sleep(0.02)
        before = await find_odds(client, BAD)
        for call_id in calls[:6]:
            given = {"call_id": call_id, "outcome": "wrong_tool"}
            reported = await client.call_tool("report_outcome", given)
        assert "the order of tools learns from it" in read_text(reported)
        with anyio.fail_after(60):
            while await find_odds(client, BAD) > before - 0.1:
                await anyio.sleep(0.02)
        assert await read_learnt(client) == 24


@pytest.mark.parametrize(
    ("remember", "learn"), [("digest", True), ("vector", True), ("text", False)]
)
async def test_without_opt_in_or_where_it_is_off_nothing_is_learnt(
    tmp_path: Path, remember: Any, learn: bool
) -> None:
    meta = open_meta(tmp_path, remember, learn)
    async with meta.client() as client:
        for _ in range(3):
            given = {"call_id": await use(client, GOOD), "outcome": "failed"}
            reported = await client.call_tool("report_outcome", given)
            given = {"tool_id": GOOD, "outcome": "failed"}
            await client.call_tool("report_outcome", given)
        await anyio.sleep(0.2)
        assert not await read_learnt(client)
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    for said in (read_text(reported), listed["report_outcome"].description or ""):
        assert "learns" not in said
