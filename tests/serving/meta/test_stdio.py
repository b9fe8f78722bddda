"""Over stdio: a real process, the real client, both eras."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ToolListChangedNotification

from tests.serving.meta_server import ERAS, ROWS, MetaServer, answering, publish, read_text
from tests.support.paths import ROOT
from tests.support.python_process import find_python

WRITE = {"tool_id": "npm:files::write_file", "arguments": {"path": "/tmp/x", "text": "hello"}}
READ = {"tool_id": "npm:files::read_file", "arguments": {"path": "/etc/motd"}}


def client(place: Path, mode: str, consent: str = "ask", **more: Any) -> Client:
    command = ["-m", "tests.serving.meta_process", str(place), consent]
    root = ROOT
    server = StdioServerParameters(command=find_python(), args=command, cwd=root)
    return Client(server, mode=mode, **more)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_whole_way_over_stdio(tmp_path, mode):
    publish(tmp_path)
    asked: list[str] = []
    async with client(tmp_path, mode, elicitation_callback=answering("accept", asked)) as mill:
        tools = [tool.name for tool in (await mill.list_tools()).tools]
        result = await mill.call_tool("find_tools", {"query": "write one text file", "k": 1})
        described = await mill.call_tool("describe_tool", {"tool_id": WRITE["tool_id"]})
        wrote = await mill.call_tool("call_tool", WRITE)
        read = await mill.call_tool("call_tool", {**READ, "arguments": {"path": "/tmp/x"}})
        bad = await mill.call_tool("call_tool", {**READ, "arguments": {}})
        prompt = await mill.get_prompt("find-tools-example")
        resources = [str(resource.uri) for resource in (await mill.list_resources()).resources]
    assert tools == ["find_tools", "describe_tool", "call_tool", "report_outcome"]
    assert WRITE["tool_id"] in read_text(result)
    assert described.structured_content["callable"] is True
    assert wrote.structured_content["status"] == "ok"
    assert len(asked) == 1
    assert read.structured_content["text"] == "hello"
    assert bad.structured_content["status"] == "invalid_arguments"
    assert "<tool_assistant>" in prompt.messages[0].content.text
    assert "toolmill://index" in resources
    statuses = [line["status"] for line in MetaServer(tmp_path).recorded]
    assert statuses == ["ok", "ok", "invalid_arguments"]


async def test_a_new_index_is_announced_over_stdio(tmp_path):
    publish(tmp_path)
    received: list[type] = []

    async def hear(message: Any) -> None:
        received.append(type(message))

    async with client(tmp_path, "legacy", message_handler=hear) as mill:
        await mill.list_tools()
        await anyio.sleep(0.3)
        publish(tmp_path, ROWS[:2], "r2")
        with anyio.fail_after(60):
            while ToolListChangedNotification not in received:
                await anyio.sleep(0.05)
        listing = (await mill.list_tools()).tools[0].description
    assert "2 tools of 1 server" in listing


async def test_when_its_client_leaves_the_process_closes_what_it_runs_and_ends(tmp_path):
    publish(tmp_path)
    command = [find_python(), "-m", "tests.serving.meta_process", str(tmp_path), "ask"]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        assert process.stdin
        assert process.stdout
        await process.stdin.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        with anyio.fail_after(60):
            answer = await process.stdout.receive()
            await process.stdin.aclose()
            await process.wait()
    assert answer.startswith(b'{"jsonrpc"')
    assert process.returncode == 0
    assert (tmp_path / "closed").read_text() == "True"


async def test_without_an_index_the_server_starts_and_says_what_to_do(tmp_path):
    async with client(tmp_path, "auto") as mill:
        result = await mill.call_tool("find_tools", {"query": "anything"})
    assert result.is_error
    assert "toolmill index" in read_text(result)
