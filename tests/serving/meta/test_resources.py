"""The prompt, the catalogue and the index version, as resources and prompts."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from serving.discovery.request import write_system_prompt
from tests.serving.meta_server import ERAS, MetaServer, publish, row


@pytest.fixture
def meta(tmp_path: Path) -> MetaServer:
    publish(tmp_path)
    return MetaServer(tmp_path)


async def read(client: Any, uri: str) -> Any:
    return json.loads((await client.read_resource(uri)).contents[0].text)


@pytest.mark.parametrize("mode", ERAS)
async def test_what_there_is_to_read_is_listed(meta: MetaServer, mode: str) -> None:
    async with meta.client(mode) as client:
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        templates = [
            template.uri_template
            for template in (await client.list_resource_templates()).resource_templates
        ]
        for uri in listed:
            assert (await client.read_resource(uri)).contents[0].text
    assert "toolmill://prompt" in listed
    assert "toolmill://servers/{server_id}" in templates


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


async def test_the_catalogue_counts_tools_by_server_and_leads_to_each(meta: MetaServer) -> None:
    async with meta.client() as client:
        catalogue = await read(client, "toolmill://catalogue")
        files = await read(client, "toolmill://servers/npm%3Afiles")
    counts = {one["server_id"]: one["tools"] for one in catalogue["items"]}
    assert counts == {"npm:files": 2, "npm:odd": 6, "pypi:clock": 1, "pypi:mail": 1}
    assert (catalogue["servers"], catalogue["tools"]) == (4, 10)
    assert "next" not in catalogue
    assert [file["tool_id"] for file in files["tools"]] == [
        "npm:files::read_file",
        "npm:files::write_file",
    ]
    assert files["index"] == catalogue["index"]


async def test_a_large_catalogue_comes_in_pages(tmp_path: Path) -> None:
    publish(tmp_path, [row(f"npm:server-{i:03}", "tool", "Do a thing") for i in range(205)])
    async with MetaServer(tmp_path).client() as client:
        first = await read(client, "toolmill://catalogue")
        second = await read(client, first["next"])
        with pytest.raises(MCPError, match="page is 3; expected 1 to 2"):
            await read(client, "toolmill://catalogue/3")
    assert len(first["items"]) == 200
    assert len(second["items"]) == 5
    assert "next" not in second


@pytest.mark.parametrize(
    "uri",
    [
        "toolmill://nothing",
        "toolmill://servers/npm%3Agone",
        "toolmill://servers/",
        "toolmill://catalogue/x",
        "toolmill://catalogue/-1",
        "toolmill://catalogue/99999999",
        "file:///etc/passwd",
        "toolmill://servers/..%2F..%2Fetc",
    ],
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
            await client.read_resource("toolmill://catalogue")
    assert prompt.contents[0].text
