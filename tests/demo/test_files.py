"""The demo's remote server, by the SDK's own client over real HTTP."""

import httpx2
import pytest

from demo.server import replicas
from demo.sites.files import answer_message


async def test_the_sdks_client_lists_and_calls_its_tools() -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    with replicas(scale="small", sites=["files"]) as running:
        async with (
            streamable_http_client(f"{running['files']}/mcp") as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = await session.list_tools()
            assert [tool.name for tool in tools.tools] == ["define_term", "find_terms"]
            result = await session.call_tool("define_term", {"term": "drift"})
            assert "one run and the next" in result.content[0].text


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"id": 1}'])
def test_what_is_no_request_is_an_error_in_the_protocols_terms(body: bytes) -> None:
    with replicas(scale="small", sites=["files"]) as running:
        answer = httpx2.post(f"{running['files']}/mcp", content=body, timeout=60)
        assert answer.json()["error"]["code"] == -32600
        assert httpx2.get(f"{running['files']}/mcp", timeout=60).status_code == 405


def test_a_notification_is_not_answered() -> None:
    assert answer_message({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
