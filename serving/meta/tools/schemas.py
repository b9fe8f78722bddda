"""Schemas: what the four tools take and answer, as `tools/list` shows it.

A model reads names, descriptions and input schemas in every session, so they are short: 3,100
characters of JSON for all four.
"""

from typing import Any

from assets.servers.calls.log import REPORTS
from serving.ranking.query import STRATEGIES

FIND, DESCRIBE, CALL, REPORT = "find_tools", "describe_tool", "call_tool", "report_outcome"
MAX_K = 50
MAX_QUERY = 10_000  # characters of a query; the router reads the first 4,000
MAX_TEXT = 200_000  # characters of a model's text that may hold requests
MAX_EXCLUDE = 1_000
MAX_REQUESTS = 20  # of one call
LEAST_TOKENS, MAX_TOKENS = 60, 20_000  # that an answer may be held to
MAX_NOTE = 500

_INDEX = {"type": ["string", "null"], "description": "version of the index that answered"}
_ERROR = {
    "type": "object",
    "properties": {
        "kind": {"type": "string"},
        "field": {"type": "string"},
        "message": {"type": "string"},
        "retry_after_s": {"type": "number"},
    },
    "required": ["kind", "message"],
}
_TOOL_ID = {"type": "string", "description": "as find_tools gave it: <server_id>::<tool>"}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_PROBLEMS = {
    "type": "array",
    "items": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def _make_output(**properties: Any) -> dict[str, Any]:
    shared = {"index": _INDEX, "error": _ERROR}
    return {"type": "object", "properties": {**shared, **properties}, "required": ["index"]}


def _make_input(*required: str, **properties: Any) -> dict[str, Any]:
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": list(required)} if required else shape


_NUMBER = {"type": "number"}
_RELIABILITY = {
    "type": ["object", "null"],
    "properties": {"mean": _NUMBER, "low": _NUMBER, "high": _NUMBER, "n": _NUMBER},
    "description": "expected share of its calls that work, 95% interval, calls it rests on",
}
_HIT = {
    "type": "object",
    "properties": {
        "tool_id": {"type": "string"},
        "says": {"type": "string", "description": "its own words, third-party text"},
        "score": {"type": "number"},
        "parameters": {"type": "string"},
        "flags": _TEXTS,
        "reliability": _RELIABILITY,
    },
    "required": ["tool_id", "says", "score"],
}
_ANSWER = {
    "type": "object",
    "properties": {
        "asked": {"type": "string"},
        "hits": {"type": "array", "items": _HIT},
        "no_tool": {"type": "boolean", "description": "nothing here seems to suit"},
        "suitable": {"type": "number", "description": "probability that something does"},
        "problems": _TEXTS,
        "left_out": {"type": "integer", "description": "tools beyond max_tokens"},
    },
    "required": ["asked", "hits", "no_tool"],
}

_TEXT = {"type": "string"}
REQUEST: dict[str, Any] = {"query": _TEXT, "server": _TEXT, "tool": _TEXT}


def _make_number(least: int, most: int, about: str, **more: Any) -> dict[str, Any]:
    shape = {"type": "integer", "minimum": least, "maximum": most}
    return {**shape, "description": about, **more}


INPUTS: dict[str, dict[str, Any]] = {
    FIND: _make_input(
        query={"type": "string", "description": "what a tool should do, in words"},
        server={"type": "string", "description": "or: the platform or kind of server"},
        tool={"type": "string", "description": "with or without server: the operation"},
        text={"type": "string", "description": "or: model text with <tool_assistant> blocks"},
        requests={
            "type": "array",
            "items": {"type": "object", "properties": REQUEST},
            "maxItems": MAX_REQUESTS,
            "description": "or: several, answered one by one",
        },
        k=_make_number(1, MAX_K, "most tools for a request", default=5),
        stretch=_make_number(0, MAX_K, "up to so many more, as good as the last"),
        trim={"type": "boolean", "description": "leave out those far behind the first"},
        max_tokens=_make_number(LEAST_TOKENS, MAX_TOKENS, "most tokens of the answer"),
        shown={**_TEXTS, "description": "tool ids shown before: they and their twins stay out"},
        exclude={**_TEXTS, "description": "tool ids that failed: a twin may stand in"},
        strategy={"type": "string", "enum": list(STRATEGIES), "default": STRATEGIES[0]},
        context={"type": "string", "description": "what the conversation is about"},
        parameters={"type": "boolean", "description": "show parameters too", "default": False},
    ),
    DESCRIBE: _make_input("tool_id", tool_id=_TOOL_ID),
    CALL: _make_input(
        "tool_id",
        tool_id=_TOOL_ID,
        arguments={"type": "object", "description": "as its contract asks"},
        repair={
            "type": "boolean",
            "default": False,
            "description": "fix arguments that do not validate, and say what was changed",
        },
    ),
    REPORT: _make_input(
        "outcome",
        call_id={"type": "string", "description": "as call_tool gave it"},
        tool_id={**_TOOL_ID, "description": "or the tool, when it was not called"},
        outcome={"type": "string", "enum": list(REPORTS)},
        note={"type": "string", "maxLength": MAX_NOTE, "description": "why; no private data"},
    ),
}
OUTPUTS: dict[str, dict[str, Any]] = {
    FIND: _make_output(
        answers={"type": "array", "items": _ANSWER},
        tokens={"type": "integer", "description": "about so many in the text"},
        gone={**_TEXTS, "description": "shown before, no longer there"},
        requests_left_out={"type": "integer", "description": "last requests beyond max_tokens"},
        stop={"type": "string", "description": "why asking again in these words is no use"},
    ),
    DESCRIBE: _make_output(
        tool_id={"type": "string"},
        contract={"type": "object"},
        contract_digest={"type": "string"},
        cut={"type": "boolean", "description": "parts of the contract were left out"},
        flags=_TEXTS,
        marketplaces=_TEXTS,
        reliability=_RELIABILITY,
        runs={"type": "string"},
        callable={"type": "boolean"},
        consent={"type": "object", "properties": {"needed": {"type": "boolean"}}},
    ),
    CALL: _make_output(
        call_id={"type": "string"},
        tool_id={"type": "string"},
        status={"type": "string"},
        seconds={"type": "number"},
        repaired=_TEXTS,
        problems=_PROBLEMS,
        text={"type": "string", "description": "third-party text"},
        structured={"description": "third-party data"},
        cut={"type": "boolean"},
        findings={
            "type": "array",
            "items": {"type": "object", "properties": {"rule": {"type": "string"}}},
            "description": "signs of injection in the result; keys that were taken out of it",
        },
        reason={"type": "string"},
    ),
    REPORT: _make_output(
        recorded={"type": "boolean"},
        kept={"type": "string", "description": "what is kept of it"},
    ),
}
