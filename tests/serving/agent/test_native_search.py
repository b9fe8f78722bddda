"""Search results in the shapes of Anthropic's and OpenAI's native tool search."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from serving.discovery.functions import APIS, write_native_answer
from serving.ranking.query import ToolQuery
from serving.router import Router
from tests.serving.meta_server import ROWS, opened, publish, row
from warehouse.llm.chat import write_wire_name

GET_TIME = write_wire_name("pypi:clock::get_time")


@pytest.fixture
def router(tmp_path: Path) -> Router:
    publish(tmp_path)
    return opened(tmp_path, None)


def answer(api: str, router: Router, k: int = 2) -> dict[str, Any]:
    hits = router.find(ToolQuery(tool="tell the hour in a city", k=k)).hits
    return write_native_answer(api, router, hits, "id_1")


def test_anthropics_client_gets_references_to_tools_it_declares(router):
    result = answer("anthropic", router)
    assert result["item"]["type"] == "tool_result"
    assert result["item"]["tool_use_id"] == "id_1"
    first, second = result["item"]["content"]
    assert first == {"type": "tool_reference", "tool_name": GET_TIME}
    declared = {tool["name"]: tool for tool in result["tools"]}
    assert {first["tool_name"], second["tool_name"]} == set(declared)
    assert all(tool["defer_loading"] is True for tool in result["tools"])
    assert declared[GET_TIME]["input_schema"]["required"] == ["city"]
    assert result["tool_ids"][GET_TIME] == "pypi:clock::get_time"


def test_openais_client_gets_the_definitions_as_its_sdk_types_them(router):
    from openai.types.responses.response_tool_search_output_item import ResponseToolSearchOutputItem

    result = answer("openai", router)
    item = result["item"]
    assert (item["type"], item["call_id"], item["execution"]) == (
        "tool_search_output",
        "id_1",
        "client",
    )
    first = TypeAdapter(ResponseToolSearchOutputItem).validate_python({"id": "x", **item}).tools[0]
    assert (first.type, first.name, first.defer_loading) == ("function", GET_TIME, True)
    assert result["tools"] == []


def test_strict_and_gemini_get_their_own_subsets(router):
    (tool, *_) = answer("openai-strict", router)["item"]["tools"]
    assert (tool["name"], tool["strict"]) == (GET_TIME, True)
    assert tool["parameters"]["additionalProperties"] is False
    gemini = answer("gemini", router)
    assert GET_TIME in gemini["item"]["functionResponse"]["response"]["tools"]
    declared = {tool["name"]: tool["parameters"] for tool in gemini["tools"]}
    assert declared[GET_TIME]["required"] == ["city"]


def test_gemini_is_sent_no_parameter_name_that_it_refuses(tmp_path):
    odd = row("npm:odd", "plan", "Plan a day", {"properties": {"due-date": {"type": "string"}}})
    publish(tmp_path, [*ROWS, odd])
    router = opened(tmp_path, None)
    hits = router.find(ToolQuery(tool="plan a day", k=3)).hits
    assert "npm:odd::plan" not in write_native_answer("openai", router, hits, "c")["left_out"]
    gemini = write_native_answer("gemini", router, hits, "c")
    assert "due-date" in gemini["left_out"]["npm:odd::plan"]
    assert "due-date" not in json.dumps([gemini["tools"], gemini["tool_ids"]])


@pytest.mark.parametrize("api", APIS)
def test_a_tool_that_the_api_refuses_is_left_out_with_its_reason(tmp_path, api):
    odd = row("npm:odd", "plan", "Plan a day", {"properties": {"due date": {"type": "string"}}})
    publish(tmp_path, [*ROWS, odd])
    router = opened(tmp_path, None)
    hits = router.find(ToolQuery(tool="plan a day", k=3)).hits
    native_answer = write_native_answer(api, router, hits, "c")
    assert hits[0].tool_id == "npm:odd::plan"
    assert list(native_answer["left_out"]) == ["npm:odd::plan"]
    assert "«due date»" in native_answer["left_out"]["npm:odd::plan"]
    assert len(native_answer["tool_ids"]) == 2
    assert "due date" not in json.dumps([native_answer["item"], native_answer["tools"]])


def test_nothing_found_is_said_in_words_or_as_an_empty_list(router):
    assert write_native_answer("openai", router, [], "c")["item"]["tools"] == []
    content = write_native_answer("anthropic", router, [], "c")["item"]["content"]
    assert content == [{"type": "text", "text": "No tool was found."}]


@pytest.mark.parametrize("api", APIS)
def test_answers_are_json_and_show_nothing_hidden(router, api):
    text = json.dumps(answer(api, router, k=10), ensure_ascii=False)
    assert not set(text) & set("\u200b\u202e\x1b")
