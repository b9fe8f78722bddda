"""An index with a trained reranker: what a search shows, and learning while it serves."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import anyio
import numpy as np
import polars as pl
import pytest
from mcp import Client

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.result import CallResult
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexBroken, IndexSource
from serving.meta.policy import LOCAL, MetaPolicy
from serving.ranking.overlays import BlockedTools
from serving.ranking.query import ToolQuery
from serving.router import Router
from tests.extensions.recommender.reranked_tools import BAD, GOOD, QUERY, ROWS, draw_calls, train
from tests.serving.meta_server import ERAS, MetaServer, read_text, text
from tests.support.cases import cases
from tests.vectors.conftest import WordEmbedder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    home = tmp_path_factory.mktemp("home")
    return home, build_ranked(home, draw_calls(200)), build_ranked(home, None)


def build_ranked(home: Path, calls: pl.DataFrame | None, name: str = "words") -> str:
    """The version of an index with a reranker of these calls, over the embedder of that name."""
    embedder, file = WordEmbedder(), None
    if calls is not None:
        card = train(home, calls, WordEmbedder(name) if name != "words" else embedder)
        file = home / "models" / card["name"] / "reranker.npz"
    return build_index(home, IndexSource(ROWS), embedder.embed, embedder="words", reranker=file)


def open_version(place: Path, version: str) -> Router:
    return Router(load_index(place, version), WordEmbedder())


def test_of_two_tools_that_say_the_same_the_one_that_works_is_first_by_this_strategy_alone(place):
    home, ranked, plain = place
    assert ranked != plain
    router = open_version(home, ranked)
    for job in ("weather", "train", "mail"):
        hits = router.find(ToolQuery(f"tell the {job} of a city", k=10)).hits
        assert hits[0].tool_id == f"npm:good::good_{job}"
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert 0 < hits[0].why["scores"]["success"] == hits[0].score <= 1
    before = open_version(home, plain).find(ToolQuery("tell the mail of a city", k=10)).hits
    assert before[0].tool_id == "npm:bad::bad_mail"
    assert {hit.tool_id for hit in before} == {hit.tool_id for hit in hits}
    routers = [open_version(home, version) for version in (ranked, plain)]
    ask = ToolQuery("tell the mail of a city", k=10, strategy="bm25")
    assert len({tuple(hit.tool_id for hit in router.find(ask).hits) for router in routers}) == 1
    held = routers[0].renew(BlockedTools(tools=frozenset({"npm:good::good_mail"})), None)
    assert held.ranker is routers[0].ranker
    hits = held.find(ToolQuery("tell the mail of a city", k=10)).hits
    assert "npm:good::good_mail" not in {hit.tool_id for hit in hits}


def test_an_index_is_served_without_a_reranker_of_an_earlier_version(place, tmp_path, caplog):
    home, ranked, plain = place
    index = replace(load_index(home, ranked), folder=tmp_path)
    with np.load(load_index(home, ranked).folder / "reranker.npz") as held:
        arrays = {name: held[name] for name in held.files}
    about = json.loads(arrays["about"].tobytes()) | {"format": 1}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(tmp_path / "reranker.npz", **arrays)
    ask = ToolQuery("tell the mail of a city", k=10)
    served = Router(index, WordEmbedder()).find(ask).hits
    unranked = open_version(home, plain).find(ask).hits
    assert [hit.tool_id for hit in served] == [hit.tool_id for hit in unranked]
    assert "format 1, read is 3; fit it again" in caplog.text
    (tmp_path / "reranker.npz").unlink()
    assert Router(index, WordEmbedder()).find(ask).hits == served


def test_a_client_is_shown_what_works_for_it_and_a_broken_reranker_is_a_broken_index(tmp_path):
    own = draw_calls(200, seed=1).with_columns(client=pl.lit("shell 2"), success=~pl.col("success"))
    router = open_version(tmp_path, build_ranked(tmp_path, pl.concat([draw_calls(400), own])))
    for client, first in (("token:ann shell 2", BAD), ("token:bo shell 2", GOOD), (None, GOOD)):
        assert router.find(ToolQuery(QUERY, k=10, client=client)).hits[0].tool_id == first
    version = build_ranked(tmp_path, draw_calls(60), "other words")
    with pytest.raises(IndexBroken, match="other words"):
        open_version(tmp_path, version)
    held = tmp_path / "router" / version / "reranker.npz"
    held.write_bytes(held.read_bytes()[:-40])
    with pytest.raises(IndexBroken, match=r"reranker\.npz has"):
        open_version(tmp_path, version)


async def turn_on_the_good(server_id: str, *_: Any, **__: Any) -> CallResult:
    """The good tools fail now."""
    if server_id == "npm:good":
        return text("out of order", status="tool_error", blame="tool")
    return text("done")


def open_meta(place: Path, remember: Any = "text", learn: bool = True) -> MetaServer:
    local, learning = replace(LOCAL, remember=remember), ReliabilityPolicy() if learn else None
    meta = MetaServer(
        place, MetaPolicy(poll_s=0.02, consent="always", local=local, learning=learning)
    )
    meta.caller = SimpleNamespace(call=turn_on_the_good, close=AsyncMock())  # type: ignore[assignment]
    return meta


async def list_hits(client: Client) -> list[dict[str, Any]]:
    found = await client.call_tool("find_tools", {"query": QUERY, "k": 4})
    return found.structured_content["answers"][0]["hits"]


async def find_first(client: Client) -> str:
    return (await list_hits(client))[0]["tool_id"]


async def find_odds(client: Client, tool_id: str) -> float:
    return {hit["tool_id"]: hit["score"] for hit in await list_hits(client)}[tool_id]


async def use(client: Client, tool_id: str) -> str:
    await find_first(client)
    called = await client.call_tool("call_tool", {"tool_id": tool_id})
    return called.structured_content["call_id"]


async def read_learnt(client: Client) -> int | None:
    [content] = (await client.read_resource("toolmill://index")).contents
    return json.loads(content.model_dump()["text"])["reranker"]["learnt_since"]


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_that_fail_and_reports_change_the_next_search(home, mode):
    async with open_meta(home).client(mode) as client:
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


@cases("remember, learn", ("digest", True), ("vector", True), ("text", False))
async def test_without_opt_in_or_where_it_is_off_nothing_is_learnt(home, remember, learn):
    async with open_meta(home, remember, learn).client() as client:
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
