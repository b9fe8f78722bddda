"""The prompts, and the index version as a resource."""

from pathlib import Path

import numpy as np
import pytest
from mcp.shared.exceptions import MCPError

from serving.agent_loop import AgentLimits, run_agent
from serving.discovery.request import write_block, write_system_prompt
from serving.discovery.session import render
from serving.index.build import find_twin_places
from serving.index.folder import load_index
from serving.index.model import UNVERIFIED
from serving.meta.policy import MetaPolicy
from serving.ranking.query import ToolQuery
from tests.serving.meta_server import (
    ERAS,
    RECIPES,
    ROWS,
    MetaServer,
    publish,
    read_text,
    row,
    served,
)
from tests.support.cases import cases
from tests.training.evaluation.scripted_agent import Script, says
from warehouse.llm.chat import write_wire_name


@pytest.mark.parametrize("mode", ERAS)
async def test_what_there_is_to_read_is_listed(meta, mode):
    async with meta.client(mode) as client:
        listing = [str(resource.uri) for resource in (await client.list_resources()).resources]
        for uri in listing:
            assert (await client.read_resource(uri)).contents[0].text
    assert listing == ["toolmill://index"]


async def test_the_prompt_is_the_one_of_the_request_module(meta):
    async with meta.client() as client:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        prompts = [await client.get_prompt(name) for name in names]
        with pytest.raises(MCPError, match="find-tools-example"):
            await client.get_prompt("nonsense")
    texts = [prompt.messages[0].content.text for prompt in prompts]
    assert texts == [write_system_prompt(example=False), write_system_prompt(example=True)]
    assert names == ["find-tools", "find-tools-example"]


@cases("uri", "toolmill://nothing", "toolmill://prompt/" + "x" * 9_000, "file:///etc/passwd")
async def test_an_address_that_names_nothing_is_an_error(meta, uri):
    async with meta.client() as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(uri)
    assert len(str(raised.value)) < 400


async def test_without_an_index_the_prompt_can_be_read_all_the_same(tmp_path):
    async with MetaServer(tmp_path).client() as client:
        prompt = await client.get_prompt("find-tools")
        with pytest.raises(MCPError, match="toolmill index"):
            await client.read_resource("toolmill://index")
    assert prompt.messages[0].content.text


# A recipe of that server is in the index, so that the mark alone is what refuses.
NEVER = row("npm:odd", "dig", "Dig for buried treasure", annotations={"readOnlyHint": True},
            flags=[UNVERIFIED])  # fmt: skip
ID = "npm:odd::dig"
FIND = {"query": "dig for buried treasure", "k": 1}


@pytest.fixture
def meta(tmp_path: Path) -> MetaServer:
    publish(tmp_path, [*ROWS, NEVER])
    assert "npm:odd" in RECIPES
    return MetaServer(tmp_path)


@pytest.mark.parametrize("mode", ERAS)
async def test_every_answer_says_that_it_is_unverified(meta, mode):
    async with meta.client(mode) as client:
        result = await client.call_tool("find_tools", FIND)
        answer = await client.call_tool("describe_tool", {"tool_id": ID})
    [hit] = result.structured_content["answers"][0]["hits"]
    assert (hit["tool_id"], hit["flags"]) == (ID, [UNVERIFIED])
    assert f"{ID} «Dig for buried treasure» [flagged: {UNVERIFIED}]" in read_text(result)
    described = answer.structured_content
    assert (described["callable"], described["flags"]) == (False, [UNVERIFIED])
    assert described["runs"].startswith("never")
    assert "calls: not possible here" in read_text(answer)


@cases("consent", "ask", "always")
async def test_it_is_never_called(meta, consent):
    meta.policy = MetaPolicy(consent=consent)
    async with meta.client() as client:
        result = await client.call_tool("call_tool", {"tool_id": ID, "arguments": {}})
    assert result.structured_content["status"] == "refused"
    assert "nobody has launched" in read_text(result)
    assert meta.caller.called == []
    [line] = meta.recorded
    assert (line["status"], line["error_kind"]) == ("refused", UNVERIFIED)


async def test_no_outcome_of_it_can_be_reported(meta):
    async with meta.client() as client:
        result = await client.call_tool("report_outcome", {"tool_id": ID, "outcome": "worked"})
    assert result.is_error
    assert meta.recorded == []


def test_a_hit_and_a_prompt_carry_the_mark(meta):
    [hit] = served(meta.place).current().find(ToolQuery(query=FIND["query"], k=1)).hits
    assert hit.flags == (UNVERIFIED,)
    assert render([hit]) == f"- {ID} (unverified: cannot be called): Dig for buried treasure"


def test_it_is_no_twin_of_a_tool_that_was_launched(tmp_path):
    copy = {**ROWS[0], "server_id": "npm:copy"}
    for flags, count in (([], 1), ([UNVERIFIED], 2)):
        index = load_index(tmp_path, publish(tmp_path, [ROWS[0], {**copy, "flags": flags}]))
        twins = find_twin_places(index.tools, [index.contract(0), index.contract(1)])
        assert len(np.unique(twins)) == len(np.unique(index.twins)) == count


async def test_it_is_shown_to_a_model_but_is_no_function_of_its_request(tmp_path):
    publish(tmp_path, [*ROWS, NEVER])
    async with MetaServer(tmp_path, MetaPolicy(pinned=("npm:odd::*",))).client() as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    model = Script(says(write_block("odd", "dig for buried treasure")), says("No."))
    result = await run_agent("Dig it up.", model, served(tmp_path), limits=AgentLimits(k=2))
    assert ID in [hit.tool_id for hit in result.rounds[0].hits]
    assert len(model.requests[1][1]) == 1
    assert write_wire_name("npm:odd::dig") not in [
        *names,
        model.requests[1][1][0]["function"]["name"],
    ]
    assert write_wire_name("npm:odd::fortune") in names
