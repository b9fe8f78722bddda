"""Contracts, calls that fit them, and next versions of known kinds, as hypothesis draws them."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract, contract_digest

WORDS = ("city", "user_id", "path", "note", "amount", "priority", "tags", "deep", "title", "branch")
TYPES = ("string", "integer", "number", "boolean", "enum", "array", "object")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["Oslo", "a b", "x/y.txt", "42", "été", ""]),
    "integer": st.integers(0, 50),
    "number": st.sampled_from([0, 1.5, 7, -2.25]),
    "boolean": st.booleans(),
    "enum": st.sampled_from(["low", "high"]),
    "array": st.lists(st.sampled_from(["a", "b", "c"]), max_size=3),
}
COMPATIBLE = ("option", "default", "enum", "wider", "limits", "described", "spelt", "tool")
BREAKING = ("nest", "required", "gone", "narrower", "type", "opposite", "unit", "closed_enum")


def tool(properties: dict[str, Any], required: list[str], name: str = "make_note") -> dict:
    schema = {"type": "object", "properties": properties, "required": required}
    text = "Writes a note about a place into the book of the user"
    return {"name": name, "description": text, "inputSchema": schema}


@st.composite
def schemas(draw: Any, depth: int = 0) -> dict[str, Any]:
    kind = draw(st.sampled_from(TYPES if depth == 0 else TYPES[:-1]))
    if kind == "object":
        names = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True))
        inside = {name: draw(schemas(1)) for name in names}
        return {"type": "object", "properties": inside}
    if kind == "enum":
        return {"type": "string", "enum": ["low", "high"]}
    if kind == "array":
        return {"type": "array", "items": {"type": "string"}}
    extra = {"minimum": -5} if kind in ("integer", "number") and draw(st.booleans()) else {}
    return {"type": kind, **extra}


@st.composite
def values(draw: Any, schema: dict[str, Any]) -> Any:
    if schema["type"] == "object":
        return {name: draw(values(sub)) for name, sub in schema["properties"].items()}
    return draw(VALUES["enum" if "enum" in schema else schema["type"]])


@st.composite
def called(draw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tool, arguments that fit it)."""
    names = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True))
    properties = {name: draw(schemas()) for name in names}
    required = draw(st.lists(st.sampled_from(names), unique=True))
    arguments = {
        name: draw(values(schema))
        for name, schema in properties.items()
        if name in required or draw(st.booleans())
    }
    return tool(properties, required), arguments


def next_version(old: dict[str, Any], change: str, name: str) -> dict[str, Any]:
    """The tool after one change of a kind, at parameter `name` where it has one."""
    new = copy.deepcopy(old)
    schema = new["inputSchema"]
    of = schema["properties"]
    if change == "option":
        of["brand_new"] = {"type": "string", "default": "x"}
    elif change == "default":
        of[name]["default"] = "zzz"
    elif change == "described":
        new["description"] += ", kindly"
    elif change == "tool":
        new["name"] = "write_note"
    elif change == "enum" and "enum" in of[name]:
        of[name]["enum"] = ["none", *of[name]["enum"], "urgent"]
    elif change == "wider":
        kind = of[name]["type"]
        of[name]["type"] = "number" if kind == "integer" else [kind, "null"]
    elif change == "limits" and "minimum" in of[name]:
        of[name]["minimum"] = -50
    elif change == "spelt":
        _rename(schema, name, "".join(part.capitalize() for part in name.split("_")))
    elif change == "nest":
        _nest(schema)
    elif change == "required":
        of["brand_new"] = {"type": "string"}
        schema["required"] = [*schema["required"], "brand_new"]
    elif change == "gone":
        del of[name]
        schema["required"] = [item for item in schema["required"] if item != name]
    elif change == "narrower":
        of[name] = {"type": of[name]["type"], "enum": ["never said"]}
    elif change == "type":
        of[name] = {"type": "null"}
    elif change == "opposite":
        _rename(schema, name, f"exclude_{name}")
    elif change == "unit":
        _rename(schema, name, f"{name}_ms")
    elif change == "closed_enum":
        of[name] = {"const": "never said"}
    return new


def _rename(schema: dict[str, Any], name: str, other: str) -> None:
    of = schema["properties"]
    of[other] = of.pop(name)
    schema["required"] = [other if item == name else item for item in schema["required"]]


def _nest(schema: dict[str, Any]) -> None:
    """All parameters go into one object."""
    inside = {"type": "object", "properties": schema["properties"], "required": schema["required"]}
    schema["properties"] = {"params": inside}
    schema["required"] = ["params"]


def snapshot(raw: dict[str, Any], server: str = "npm:notes") -> dict[str, Any]:
    """A snapshot row of a raw tool."""
    return {
        "marketplace": "registry",
        "server_id": server,
        "tool": raw["name"],
        "contract_digest": contract_digest(raw),
        "contract": json.dumps(canonicalize_contract(raw)),
        "schema_problem": None,
        "recipe_digest": "r" * 64,
        "license": "MIT",
    }
