"""From the client to an untrusted server's process in the real sandbox and back."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.servers.calls.caller import ToolCaller
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import dump_recipe
from serving.index.build import build_index, move_pointer
from serving.index.model import IndexSource
from serving.meta.policy import MetaPolicy
from tests.serving.calling import CONTRACT, LIMITS, Bench
from tests.serving.meta_server import ERAS, MetaServer, read_text
from tests.support.untrusted_server import CONVERSATION, POLICY
from tests.vectors.conftest import WordEmbedder

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
