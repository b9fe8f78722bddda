"""Found tools as functions that an endpoint takes, in its names and within bounds.

What each vendor takes is in `assets/contracts/vendor_rules.py`. Two APIs let their models search
for tools; Gemini has no such search, so it gets declarations. None has been asked from here.

- Anthropic (Messages): the client's own search tool returns a `tool_result` of `tool_reference`
  blocks; each name must be among the request's `tools`, with `defer_loading: true`. Source: custom
  tool search in https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
- OpenAI (Responses): the model writes a `tool_search_call`; the client answers with a
  `tool_search_output` of the same `call_id` that holds the definitions. Source:
  https://developers.openai.com/api/docs/guides/tools-tool-search and the types
  `ResponseToolSearchOutputItemParam`, `FunctionToolParam` of the openai SDK.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.contracts.validate import find_schema_problem
from assets.contracts.vendor_rules import (
    ANTHROPIC,
    GEMINI,
    GEMINI_KEY,
    OPENAI,
    OPENAI_STRICT,
    PROPERTY_KEY,
    shorten_texts,
    write_schema,
)
from assets.contracts.vendor_subsets import write_gemini_schema, write_strict_schema
from serving.index.model import UNVERIFIED
from serving.ranking.query import ToolHit
from serving.router import Router
from serving.untrusted_text import BoundedText, show_line
from warehouse.llm.chat import write_wire_name
from warehouse.sanitize.untrusted_text import quote_name, quote_text

_ABOUT = 1_000  # characters of a description
_SCHEMA = 8_000  # of a tool's parameters, texts included: 99% of real contracts are below 6,000
_BARE = 32_000  # of its parameters without their texts; a tool with more is left out
_MEMBERS = 5_000  # of one list of choices or parameters
APIS = (ANTHROPIC, OPENAI, OPENAI_STRICT, GEMINI)


@dataclass(frozen=True)
class OfferedFunction:
    tool_id: str
    wire: str
    function: dict[str, Any]


def keep_callable(hits: Iterable[ToolHit]) -> list[ToolHit]:
    """Without tools that nobody launched: those are only shown."""
    return [hit for hit in hits if UNVERIFIED not in hit.flags]


def write_functions(
    contracts: Iterable[tuple[str, Mapping[str, Any]]],
) -> dict[str, OfferedFunction]:
    """Name on the wire -> tool, of (tool id, contract) in order, without those of `list_refused`.
    The texts are third-party: what shows nothing is taken out, what is long is cut."""
    result: dict[str, OfferedFunction] = {}
    for tool_id, contract in dict(contracts).items():
        if find_refusal(contract) is None:
            offered = _write_offered(tool_id, contract)
            result.setdefault(offered.wire, offered)  # the first one keeps its name
    return result


def list_refused(contracts: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Tool id -> why no model's API takes its parameters: one such tool costs the whole request. Of
    two ids with one name on the wire, which a server can search for among its own, the second."""
    refused, names = dict[str, str](), dict[str, str]()
    for tool_id, contract in dict(contracts).items():
        why, wire = find_refusal(contract), write_wire_name(tool_id)
        if why is None and names.setdefault(wire, tool_id) != tool_id:
            why = f"its name for APIs, {wire}, is that of {quote_name(names[wire], 120)}"
        if why is not None:
            refused[tool_id] = why
    return refused


def find_refusal(contract: Mapping[str, Any]) -> str | None:
    """Why APIs refuse a tool's parameters as they would be sent, None where they take them."""
    return _write_parameters(contract, False)[1]


def _write_offered(tool_id: str, contract: Mapping[str, Any]) -> OfferedFunction:
    wire = write_wire_name(tool_id)
    about = show_line(str(contract.get("description") or ""), _ABOUT)
    function = {"name": wire, "description": about, "parameters": bound_parameters(contract)}
    return OfferedFunction(tool_id, wire, {"type": "function", "function": function})


def bound_parameters(contract: Mapping[str, Any], quoted: bool = False) -> dict[str, Any]:
    """The input schema for APIs, prose in marks if `quoted`, long descriptions shortened first."""
    return _write_parameters(contract, quoted)[0]


def _write_parameters(
    contract: Mapping[str, Any], quoted: bool
) -> tuple[dict[str, Any], str | None]:
    """(parameters, why no API takes them or None)."""
    schema = shorten_texts(write_schema(contract.get("inputSchema")), _SCHEMA, _ABOUT)
    copy = BoundedText(_BARE, quoted=quoted, members=_MEMBERS)
    parameters = copy(schema)
    odd = next(
        (name for name in parameters["properties"] if not PROPERTY_KEY.fullmatch(name)), None
    )
    if odd is not None:
        why = f"a parameter is called {quote_name(odd, 60)}, APIs take {PROPERTY_KEY.pattern}"
        return parameters, why
    if copy.cut:
        return parameters, f"its parameters take more than {_BARE:,} characters without their texts"
    problem = find_schema_problem(parameters)
    quote = quote_text(show_line(problem or "", 240))
    return parameters, None if problem is None else f"its parameters are no JSON Schema: {quote}"


def read_arguments(arguments: Any) -> Any:
    """Arguments as an object; what is no JSON stays the text it is."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def write_call_turn(
    text: str, begun: int, calls: Sequence[tuple[str, Any, str]]
) -> list[dict[str, Any]]:
    """The messages of a turn's (name, arguments, result shown). begun: calls of turns before."""
    tool_calls = [
        {
            "id": f"call_{begun + at}",
            "type": "function",
            "function": {"name": name, "arguments": _write_arguments(arguments)},
        }
        for at, (name, arguments, _) in enumerate(calls)
    ]
    results = [
        {"role": "tool", "tool_call_id": tool_call["id"], "content": shown}
        for tool_call, (_, _, shown) in zip(tool_calls, calls, strict=True)
    ]
    return [{"role": "assistant", "content": text, "tool_calls": tool_calls}, *results]


def _write_arguments(arguments: Any) -> str:
    """Arguments in the history: an object, whatever a model wrote, for endpoints take no other."""
    body = arguments if isinstance(arguments, Mapping) else {"unreadable": str(arguments)[:2000]}
    return json.dumps(body, ensure_ascii=True, default=str)


def write_native_answer(
    api: str, router: Router, hits: Sequence[ToolHit], call_id: str
) -> dict[str, Any]:
    """A client's answer to a search, {"item", "tools", "tool_ids", "left_out"}: the conversation's
    item, definitions for the next request ([] if in the item), name -> tool id, and tool id -> why
    the API would refuse. call_id: of the call (Anthropic's `id`)."""
    index = router.index
    places = ((hit.tool_id, index.place_of(hit.tool_id)) for hit in keep_callable(hits))
    contracts = [(name, index.contract(at)) for name, at in places if at is not None]
    functions = list(write_functions(contracts).values())
    left_out = list_refused(contracts)
    if api == GEMINI:
        left_out |= _list_gemini_refused(functions)
        functions = [item for item in functions if item.tool_id not in left_out]
    facts = {"tool_ids": {item.wire: item.tool_id for item in functions}, "left_out": left_out}
    if api == GEMINI:
        response = {"tools": [item.wire for item in functions]}
        item = {"functionResponse": {"id": call_id, "name": "tool_search", "response": response}}
        return {"item": item, "tools": [*map(_write_gemini_tool, functions)], **facts}
    if api in (OPENAI, OPENAI_STRICT):
        tools = [_write_openai_tool(item, api == OPENAI_STRICT) for item in functions]
        item = {"type": "tool_search_output", "call_id": call_id, "execution": "client"}
        item |= {"status": "completed", "tools": tools}
        return {"item": item, "tools": [], **facts}
    blocks = [{"type": "tool_reference", "tool_name": item.wire} for item in functions]
    # A result without a block is refused: then words say that nothing was found.
    nothing = [{"type": "text", "text": "No tool was found."}]
    item = {"type": "tool_result", "tool_use_id": call_id, "content": blocks or nothing}
    return {"item": item, "tools": [write_anthropic_tool(item) for item in functions], **facts}


def _write_openai_tool(offered: OfferedFunction, strict: bool) -> dict[str, Any]:
    """With `strict`, a tool whose parameters strict mode can say is declared so."""
    function = offered.function["function"]
    fields = {"type": "function", "name": offered.wire, "description": function["description"]}
    closed = write_strict_schema(function["parameters"]) if strict else None
    fields |= {"parameters": closed or function["parameters"], "strict": closed is not None}
    return {**fields, "defer_loading": True}


def _list_gemini_refused(functions: Iterable[OfferedFunction]) -> dict[str, str]:
    odd = {
        item.tool_id: next(
            (name for name in item.function["function"]["parameters"]["properties"]
             if not GEMINI_KEY.fullmatch(name)), None)
        for item in functions
    }  # fmt: skip
    return {
        tool_id: f"a parameter is called {quote_name(name, 60)}, Gemini takes {GEMINI_KEY.pattern}"
        for tool_id, name in odd.items()
        if name is not None
    }


def _write_gemini_tool(offered: OfferedFunction) -> dict[str, Any]:
    function = offered.function["function"]
    parameters = write_gemini_schema(function["parameters"])
    fields = {"name": offered.wire, "description": function["description"]}
    return fields if parameters is None else {**fields, "parameters": parameters}


def write_anthropic_tool(offered: OfferedFunction) -> dict[str, Any]:
    function = offered.function["function"]
    fields = {"name": offered.wire, "description": function["description"]}
    return {**fields, "input_schema": function["parameters"], "defer_loading": True}
