"""From a real client over stdio to an untrusted server in the real sandbox."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ToolListChangedNotification

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.servers.calls.caller import ToolCaller
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import dump_recipe
from serving.index.build import build_index, move_pointer
from serving.index.model import IndexSource
from serving.meta.policy import MetaPolicy
from tests.serving.calling import CONTRACT, LIMITS, Bench
from tests.serving.meta_server import ERAS, ROWS, MetaServer, answering, publish, read_text
from tests.support.paths import ROOT
from tests.support.python_process import find_python
from tests.support.untrusted_server import CONVERSATION, POLICY
from tests.vectors.conftest import WordEmbedder

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


# --- from the client to an untrusted server's process in the real sandbox and back
CALL = {"tool_id": "npm:x::do", "arguments": {"x": 7}}


class Sandboxed(MetaServer):
    """A meta whose one tool is an untrusted server's process."""

    def __init__(self, place: Path, bench: Bench, source: str) -> None:
        super().__init__(place, MetaPolicy(consent="always", timeout_s=20))
        recipe = bench.recipe(source)
        facts = {"contract_digest": contract_digest(CONTRACT), "marketplace": "registry"}
        named = {"server_id": recipe.server_id, "tool": "do"}
        rows = [{**named, **facts, "contract": json.dumps(canonicalize_contract(CONTRACT))}]
        embedder = WordEmbedder()
        index = IndexSource(rows, recipes={recipe.server_id: dump_recipe(recipe)})
        move_pointer(place, build_index(place, index, embedder.embed, embedder=embedder.id))
        policy = DeployPolicy(bench.folder, POLICY, CONVERSATION)
        self.caller: Any = ToolCaller({recipe.server_id: dump_recipe(recipe)}, policy, LIMITS)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    folder = tmp_path / "servers"
    folder.mkdir()
    tmp_path.chmod(0o755)
    return Bench(folder, monkeypatch)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_is_run_in_the_sandbox_and_its_answer_handed_on(tmp_path, bench, mode):
    meta = Sandboxed(tmp_path, bench, "calls(lambda m, x: say(m, x * x))")
    try:
        async with meta.client(mode) as client:
            result = await client.call_tool("call_tool", CALL)
            wrong = await client.call_tool("call_tool", {**CALL, "arguments": {"x": "seven"}})
    finally:
        await meta.caller.close()
    assert result.structured_content["text"] == "49"
    assert wrong.structured_content["problems"][0]["path"] == "$.x"
    assert [line["status"] for line in meta.recorded] == ["ok", "invalid_arguments"]


async def test_a_server_that_dies_is_told_and_recorded(tmp_path, bench):
    meta = Sandboxed(tmp_path, bench, "print('no such key', file=sys.stderr); sys.exit(3)")
    try:
        async with meta.client() as client:
            result = await client.call_tool("call_tool", CALL)
    finally:
        await meta.caller.close()
    assert result.is_error
    error = result.structured_content["error"]
    (line,) = meta.recorded
    assert (line["status"], line["error_kind"]) == ("failed", error["kind"])
    assert error["message"] in read_text(result)
    assert line["contract_digest"] == contract_digest(CONTRACT)
