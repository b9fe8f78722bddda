"""Answers of the router in the words of two APIs whose models search for tools by themselves.

Anthropic (Messages): an ordinary tool of the client's answers with a `tool_result` of
`tool_reference` blocks, {"type": "tool_reference", "tool_name": …}; each name must be among the
request's `tools`, where it waits with `defer_loading: true`. Source: the section on custom tool
search of https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool

OpenAI (Responses): the tool {"type": "tool_search", "execution": "client"} makes the model write a
`tool_search_call`; the client answers with a `tool_search_output` of the same `call_id` that holds
the definitions. Source: https://developers.openai.com/api/docs/guides/tools-tool-search and the
types `ResponseToolSearchOutputItemParam`, `FunctionToolParam` of the openai SDK.

Neither API has been asked from here.
"""

from collections.abc import Sequence
from typing import Any

from serving.meta.functions import Offered, keep_callable, list_refused, write_functions
from serving.ranking.query import Hit
from serving.ranking.router import Router

ANTHROPIC, OPENAI = "anthropic", "openai"
APIS = (ANTHROPIC, OPENAI)
ABOUT = (
    "Find tools that are not loaded yet. Describe the tool, not this case: the platform or field of"
    " work in `server`, the operation and what it works on in `tool`."
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "server": {"type": "string", "description": "platform or field of work"},
        "tool": {"type": "string", "description": "operation, and what it works on"},
    },
    "required": ["tool"],
    "additionalProperties": False,
}


def write_search_tool(api: str, name: str = "find_tools") -> dict[str, Any]:
    """The search tool as a request of this API declares it."""
    if api == OPENAI:
        head = {"type": "tool_search", "execution": "client"}
        return {**head, "description": ABOUT, "parameters": PARAMETERS}
    return {"name": name, "description": ABOUT, "input_schema": PARAMETERS}


def write_native_answer(
    api: str, router: Router, hits: Sequence[Hit], call_id: str
) -> dict[str, Any]:
    """What a client sends back for a search. call_id: of the model's call (`id` of Anthropic's
    `tool_use`). {"item": …, "tools": …, "tool_ids": …, "left_out": …}: the item for the
    conversation, the definitions that the next request must declare ([] where the item holds them),
    name -> tool id for `call_tool`, and tool id -> why the API would refuse the whole request."""
    index = router.index
    places = ((hit.tool_id, index.place_of(hit.tool_id)) for hit in keep_callable(hits))
    contracts = [(name, index.contract(at)) for name, at in places if at is not None]
    found = list(write_functions(contracts).values())
    facts = {"tool_ids": {one.wire: one.tool_id for one in found}}
    facts["left_out"] = list_refused(contracts)
    if api == OPENAI:
        item = {"type": "tool_search_output", "call_id": call_id, "execution": "client"}
        item |= {"status": "completed", "tools": [_write_openai_tool(one) for one in found]}
        return {"item": item, "tools": [], **facts}
    blocks = [{"type": "tool_reference", "tool_name": one.wire} for one in found]
    # A result without a block is refused: then words say that nothing was found.
    nothing = [{"type": "text", "text": "No tool was found."}]
    item = {"type": "tool_result", "tool_use_id": call_id, "content": blocks or nothing}
    return {"item": item, "tools": [write_anthropic_tool(one) for one in found], **facts}


def _write_openai_tool(one: Offered) -> dict[str, Any]:
    function = one.function["function"]
    fields = {"type": "function", "name": one.wire, "description": function["description"]}
    return {**fields, "parameters": function["parameters"], "strict": False, "defer_loading": True}


def write_anthropic_tool(one: Offered) -> dict[str, Any]:
    """A deferred tool as a request of Anthropic's declares it."""
    function = one.function["function"]
    fields = {"name": one.wire, "description": function["description"]}
    return {**fields, "input_schema": function["parameters"], "defer_loading": True}
