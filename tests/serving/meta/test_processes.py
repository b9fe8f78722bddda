"""From a real client over stdio to an untrusted server in the real sandbox."""

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
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
from tests.serving import meta_server
from tests.serving.calling import CONTRACT, LIMITS, Bench
from tests.serving.meta_server import ERAS, MetaServer, publish, read_text
from tests.support.paths import ROOT
from tests.support.python_process import find_python
from tests.support.untrusted_server import CONVERSATION, POLICY
from tests.vectors.conftest import WordEmbedder

WRITE = {"tool_id": "npm:files::write_file", "arguments": {"path": "/tmp/x", "text": "hello"}}
READ = {"tool_id": "npm:files::read_file", "arguments": {"path": "/etc/motd"}}


def client(place: Path, mode: str, consent: str = "ask", **more: Any) -> Client:
    command = ["-m", "tests.serving.meta_process", str(place), consent]
    server = StdioServerParameters(command=find_python(), args=command, cwd=ROOT)
    return Client(server, mode=mode, **more)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_whole_way_over_stdio(tmp_path, mode):
    publish(tmp_path)
    asked: list[str] = []
    async with client(
        tmp_path, mode, elicitation_callback=meta_server.answering("accept", asked)
    ) as mill:
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
    assert (wrote.structured_content["status"], len(asked)) == ("ok", 1)
    assert read.structured_content["text"] == "hello"
    assert bad.structured_content["status"] == "invalid_arguments"
    assert "<tool_assistant>" in prompt.messages[0].content.text
    assert "toolmill://index" in resources
    statuses = [line["status"] for line in MetaServer(tmp_path).recorded]
    assert statuses == ["ok", "ok", "invalid_arguments"]


async def test_a_new_index_is_announced_over_stdio(meta, tmp_path):
    received: list[type] = []

    async def hear(message: Any) -> None:
        received.append(type(message))

    async with client(tmp_path, "legacy", message_handler=hear) as mill:
        await mill.list_tools()
        await anyio.sleep(0.3)
        publish(tmp_path, meta_server.ROWS[:2], "r2")
        await meta_server.wait_until(lambda: ToolListChangedNotification in received)
        listing = (await mill.list_tools()).tools[0].description
    assert "2 tools of 1 server" in listing


async def test_when_its_client_leaves_the_process_closes_what_it_runs_and_ends(meta, tmp_path):
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
    assert (process.returncode, (tmp_path / "closed").read_text()) == (0, "True")


CALL = {"tool_id": "npm:x::do", "arguments": {"x": 7}}


class Sandboxed(MetaServer):
    """A meta whose one tool is an untrusted server's process."""

    def __init__(self, place: Path, bench: Bench, source: str, limit_s: float = 20) -> None:
        super().__init__(place, MetaPolicy(consent="always", timeout_s=limit_s))
        recipe = bench.recipe(source)
        facts = {"contract_digest": contract_digest(CONTRACT), "marketplace": "registry"}
        named = {"server_id": recipe.server_id, "tool": "do"}
        rows = [{**named, **facts, "contract": json.dumps(canonicalize_contract(CONTRACT))}]
        embedder = WordEmbedder()
        index = IndexSource(rows, recipes={recipe.server_id: dump_recipe(recipe)})
        move_pointer(place, build_index(place, index, embedder.embed, embedder=embedder.id))
        sandbox = replace(POLICY, wall_s=limit_s)
        policy = DeployPolicy(bench.folder, sandbox, CONVERSATION)
        self.caller: Any = ToolCaller({recipe.server_id: dump_recipe(recipe)}, policy, LIMITS)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        try:
            async with meta_server.over_http(self) as url:
                yield url
        finally:
            await self.caller.close()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    tmp_path.chmod(0o755)
    return Bench(tmp_path / "servers", monkeypatch)


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
        result = await meta.use("call_tool", CALL)
    finally:
        await meta.caller.close()
    assert result.is_error
    error = result.structured_content["error"]
    (line,) = meta.recorded
    assert (line["status"], line["error_kind"]) == ("failed", error["kind"])
    assert error["message"] in read_text(result)
    assert line["contract_digest"] == contract_digest(CONTRACT)


# Tells its progress every five seconds, where it is asked to.
TAKES_LONG = """
def do(m, x):
    of = m['params'].get('_meta', {}).get('progressToken')
    for at in range(x):
        time.sleep(1)
        if of is not None and at % 5 == 0:
            about = {'progressToken': of, 'progress': at, 'total': x}
            send({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': about})
    say(m, 'done')
calls(do)
"""
LONG_S = 70
LONG_CALL = {"tool_id": "npm:x::do", "arguments": {"x": LONG_S}}
TYPESCRIPT = """
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as Http }
  from '@modelcontextprotocol/sdk/client/streamableHttp.js'
const client = new Client({ name: 't', version: '1' })
await client.connect(new Http(new URL(process.argv[2])))
let told = 0
const options = { timeout: 60000, resetTimeoutOnProgress: true, onprogress: () => { told += 1 } }
const call = { name: 'call_tool', arguments: JSON.parse(process.argv[3]) }
const result = await client.callTool(call, undefined, options)
console.log(result.structuredContent.text, told)
await client.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_of_seventy_seconds_outlives_a_client_that_waits_sixty(tmp_path, bench, mode):
    meta = Sandboxed(tmp_path, bench, TAKES_LONG, 150)
    told: list[float] = []

    async def note(done: float, total: float | None, _: str | None) -> None:
        told.append(done)

    async with meta.serve() as url, meta_server.http_client(url, mode=mode) as client:
        with anyio.fail_after(LONG_S + 60):
            result = await client.call_tool("call_tool", LONG_CALL, progress_callback=note)
    assert result.structured_content["text"] == "done"
    assert len(told) >= LONG_S / 5
    assert told == sorted({*told})


@pytest.mark.slow
@pytest.mark.registry
async def test_the_typescript_client_waits_for_it_too(tmp_path, bench):
    packages = tmp_path / "node"
    packages.mkdir()
    install = ["npm", "install", "--no-audit", "--no-fund", "@modelcontextprotocol/sdk"]
    subprocess.run(install, cwd=packages, check=True, timeout=240, capture_output=True)
    (packages / "client.mjs").write_text(TYPESCRIPT)
    meta = Sandboxed(tmp_path, bench, TAKES_LONG, 150)
    async with meta.serve() as url:
        command = ["node", "client.mjs", url, json.dumps(LONG_CALL)]
        with anyio.fail_after(LONG_S + 60):
            made = await anyio.run_process(command, cwd=packages, check=False)
    text, told = made.stdout.decode().split() or ["", "0"]
    assert text == "done", made.stderr.decode()[-2000:]
    assert int(told) >= LONG_S / 5
