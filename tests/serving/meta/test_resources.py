"""The prompt and the index version, as resources and prompts."""

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from serving.discovery.request import write_system_prompt
from tests.serving.meta_server import ERAS, MetaServer


@pytest.mark.parametrize("mode", ERAS)
async def test_what_there_is_to_read_is_listed(meta: MetaServer, mode: str) -> None:
    async with meta.client(mode) as client:
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        for uri in listed:
            assert (await client.read_resource(uri)).contents[0].text
    assert "toolmill://prompt" in listed


async def test_the_prompt_is_the_one_of_the_request_module(meta: MetaServer) -> None:
    async with meta.client() as client:
        plain = (await client.read_resource("toolmill://prompt")).contents[0].text
        example = (await client.read_resource("toolmill://prompt/example")).contents[0].text
        named = await client.get_prompt("find-tools")
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        with pytest.raises(MCPError, match="find-tools-example"):
            await client.get_prompt("nonsense")
    assert plain == write_system_prompt(example=False)
    assert example == write_system_prompt(example=True)
    assert example != plain
    assert named.messages[0].content.text == plain
    assert names == ["find-tools", "find-tools-example"]


@pytest.mark.parametrize(
    "uri",
    ["toolmill://nothing", "toolmill://prompt/" + "x" * 9_000, "file:///etc/passwd"],
)
async def test_an_address_that_names_nothing_is_an_error(meta: MetaServer, uri: str) -> None:
    async with meta.client() as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(uri)
    assert len(str(raised.value)) < 400


async def test_without_an_index_the_prompt_can_be_read_all_the_same(tmp_path: Path) -> None:
    async with MetaServer(tmp_path).client() as client:
        prompt = await client.read_resource("toolmill://prompt")
        with pytest.raises(MCPError, match="toolmill index"):
            await client.read_resource("toolmill://index")
    assert prompt.contents[0].text
