"""What clients and model vendors take as a tool, and schemas rewritten so that they are taken.

One tool that an API refuses costs the whole request, and one that the SDK's client refuses costs
the whole list. `write_schema` gives the form that Anthropic and OpenAI take; it accepts every call
that the contract accepts. Narrower subsets are in `vendor_subsets.py`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.schema_shapes import (
    TooMuchWork,
    find_lost_references,
    limit_steps,
    read_list,
    read_mapping,
    resolve,
    spend_steps,
)
from warehouse.json_types import Schema
from warehouse.sanitize.untrusted_text import shorten_text

CLASSIC, MODERN = "2025-11-25", "2026-07-28"  # versions of the protocol, from which on lists differ
MCP_SDK, ANTHROPIC, OPENAI = "mcp-sdk", "anthropic", "openai"
OPENAI_STRICT, GEMINI = "openai-strict", "gemini"


@dataclass(frozen=True)
class VendorRule:
    """One published rule. read: the day on which the source was read."""

    vendors: tuple[str, ...]
    says: str
    source: str
    read: str = "2026-11-29"


_DEFINE = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools"
_FUNCTIONS = "https://developers.openai.com/api/reference/resources/chat (FunctionDefinition)"
_STRICT = "https://developers.openai.com/api/docs/guides/structured-outputs (supported schemas)"
_SCHEMA = "https://ai.google.dev/api/caching (Schema, FunctionDeclaration)"
RULES = {
    "list_shape": VendorRule(
        (MCP_SDK,),
        "inputSchema and outputSchema are objects of type object, their properties are schemas",
        "https://modelcontextprotocol.io/specification/2025-11-25/schema#tool",
    ),
    "name": VendorRule((ANTHROPIC, OPENAI), "a tool's name matches ^[a-zA-Z0-9_-]{1,64}$", _DEFINE),
    "property_key": VendorRule(
        (ANTHROPIC,),
        "property keys match ^[a-zA-Z0-9_.-]{1,64}$",
        "the API's error message, https://github.com/anthropics/claude-code/issues/586",
    ),
    "draft": VendorRule(
        (ANTHROPIC,),
        "input_schema is valid by JSON Schema draft 2020-12",
        "the API's error message, https://github.com/Dokploy/mcp/issues/74",
    ),
    "root": VendorRule(
        (ANTHROPIC, OPENAI),
        "the root has type object and none of anyOf, oneOf, allOf (OpenAI: enum, not)",
        "the APIs' error messages, https://github.com/anthropics/claude-code/issues/88049",
    ),
    "array_items": VendorRule(
        (OPENAI,),
        "an array has items",
        "the API's error message, https://github.com/modelcontextprotocol/modelcontextprotocol"
        "/issues/410",
    ),
    "description": VendorRule((OPENAI,), "a description has at most 1,024 characters", _FUNCTIONS),
    "strict_subset": VendorRule(
        (OPENAI_STRICT,),
        "every object is closed and requires all its properties; a subset of keywords; at most"
        " 5,000 properties, 10 levels and 1,000 choices",
        _STRICT,
    ),
    "gemini_subset": VendorRule(
        (GEMINI,),
        "parameters hold the fields of Schema alone: one type, choices as texts, no references;"
        " names begin with a letter or _, those of parameters go on with letters, digits and _",
        _SCHEMA,
    ),
}
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1_024
NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
GEMINI_KEY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
PROPERTY_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_REFUSED_ROOT = ("allOf", "anyOf", "oneOf", "not", "enum", "$ref")

# Where a schema holds schemas: by name, as a list, or one.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains",
           "propertyNames", "not", "if", "then", "else")  # fmt: skip
_NULLABLE = ("const", "default", "example")  # keywords whose value may be null
_BASES = ("$schema", "$id", "$vocabulary")  # nothing is fetched, and no `$ref` is resolved by them
_SPARE = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems")  # may be a boolean
_DEEPEST = 64
_MOST_PROBLEMS = 5  # of one tool that the SDK's client reports
_UNION_STEPS = ("bool", "dict[str,any]")  # steps that pydantic adds for an alternative of its own
_MOST_BRANCHES, _MOST_NESTED = 64, 6  # branches at a root that are followed
_MOST_STEPS = 20_000  # schemas and members of them that are looked at in all


@dataclass(frozen=True)
class VendorRefusal:
    """A rule that a tool breaks as its server lists it. path: from the tool to the place."""

    rule: str
    path: tuple[str, ...]
    found: str

    def describe(self) -> str:
        """One line: who refuses what."""
        return f"refused by {' and '.join(RULES[self.rule].vendors)}: {self.found}"


def find_refusals(tool: Mapping[str, Any], protocol: str = CLASSIC) -> list[VendorRefusal]:
    """What clients and vendors refuse of one entry of `tools/list`, sent on as it is."""
    refusals = list(find_list_refusals(tool, protocol))
    name, schema = tool.get("name"), tool.get("inputSchema")
    if isinstance(name, str) and not NAME.fullmatch(name):
        length = f"its name has {len(name)} characters" if len(name) > LONGEST_NAME else ""
        refusals.append(VendorRefusal("name", ("name",), length or "its name has other characters"))
    if not isinstance(schema, Mapping):
        return refusals
    for key in _REFUSED_ROOT:
        if key in schema:
            found = f"{key} at the top of the schema"
            refusals.append(VendorRefusal("root", ("inputSchema", key), found))
    for key in map(str, read_mapping(schema.get("properties"))):
        if not PROPERTY_KEY.fullmatch(key):
            found = f"a parameter is called {shorten_text(key, 60)!r}"
            refusals.append(
                VendorRefusal("property_key", ("inputSchema", "properties", key), found)
            )
    refusals += _find_inner_refusals(schema, ("inputSchema",))
    return refusals


def _find_inner_refusals(node: Any, path: tuple[str, ...]) -> Iterator[VendorRefusal]:
    if not isinstance(node, Mapping) or len(path) > _DEEPEST:
        return
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(node.get(key), bool):
            yield VendorRefusal("draft", (*path, key), f"a boolean {key} is of draft 4")
    if isinstance(node.get("items"), list):
        yield VendorRefusal("draft", (*path, "items"), "a list of items is of draft 7")
    if "array" in list_types(node) and "items" not in node:
        yield VendorRefusal("array_items", path, "an array without items")
    for at, inner in _iterate_inner(node):
        yield from _find_inner_refusals(inner, (*path, *at))


def _iterate_inner(node: Schema) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(steps, schema) of the schemas directly within a schema."""
    for key in _NAMED:
        yield from (((key, str(at)), part) for at, part in read_mapping(node.get(key)).items())
    for key in (*_LISTED, "items"):
        yield from (((key, str(at)), part) for at, part in enumerate(read_list(node.get(key))))
    yield from (((key,), node[key]) for key in _SINGLE if isinstance(node.get(key), Mapping))


def find_list_refusals(tool: Mapping[str, Any], protocol: str = CLASSIC) -> Iterator[VendorRefusal]:
    """By which fields of this tool the official SDK's client refuses the whole list. protocol: the
    version that client and server speak."""
    from mcp_types import _v2025_11_25, _v2026_07_28
    from pydantic import ValidationError

    types: Any = _v2025_11_25 if protocol < MODERN else _v2026_07_28
    try:
        types.Tool.model_validate(tool)
    except (ValidationError, RecursionError) as error:
        problems = error.errors(include_url=False) if isinstance(error, ValidationError) else []
        for problem in problems[:_MOST_PROBLEMS]:
            steps = [str(step) for step in problem["loc"] if str(step) not in _UNION_STEPS]
            found = f"{'.'.join(steps)}: {problem['msg']}"
            yield VendorRefusal("list_shape", tuple(steps), found[:300])


def write_schema(schema: Any) -> dict[str, Any]:
    """An input schema as Anthropic and OpenAI take it: draft 2020-12, an object at the root, arrays
    with items. What stands in alternatives at the root becomes optional properties."""
    root = _modernise(schema if isinstance(schema, Mapping) else {}, 0)
    try:
        with limit_steps(_MOST_STEPS):
            properties, required = _collect_branches(root, root, 0)
    except TooMuchWork:  # 64 references to itself at each of seven levels, say
        own = read_mapping(resolve(root, root).get("properties"))
        properties, required = {name: [part] for name, part in own.items()}, set[str]()
    plain = {key: value for key, value in root.items() if key not in _REFUSED_ROOT}
    merged = {name: _join_variants(variants) for name, variants in properties.items()}
    needed = [name for name in read_list(root.get("required")) if name in required]
    needed += sorted(required - set(needed))
    bad = "required" in root and not isinstance(root["required"], list)
    if not isinstance(root.get("properties", {}), Mapping):
        merged = {}
    plain |= {"type": "object", "properties": merged}
    root = plain if bad or not (needed or "required" in root) else {**plain, "required": needed}
    lost = find_lost_references(root)
    return _drop_references(root, lost, 0) if lost else root


def list_types(node: Schema) -> list[str]:
    kind = node.get("type")
    return [item for item in (read_list(kind) or [kind]) if isinstance(item, str)]


def _map_inner(node: Schema, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy of a schema with each schema directly within it changed."""
    out = dict(node)
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: change(part) for name, part in value.items()}
        elif key in (*_LISTED, "items") and isinstance(value, list):
            out[key] = [change(part) for part in value]
        elif key in _SINGLE and not (key in _SPARE and isinstance(value, bool)):
            out[key] = change(value)
    return out


def _modernise(node: Any, depth: int) -> Any:
    """A schema of any draft in the words of 2020-12; what is no schema stays as it is."""
    if isinstance(node, bool):
        return {} if node else {"not": {}}
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return node
    fields = {
        key: {} if key in _NAMED and value == [] else value  # PHP writes an empty object so
        for key, value in node.items()
        if key not in _BASES and (value is not None or key in _NULLABLE)
    }
    out = _map_inner(fields, lambda part: _modernise(part, depth + 1))
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if isinstance(out.get(exclusive), bool) and out.pop(exclusive) and bound in out:
            out[exclusive] = out.pop(bound)
    required = out.get("required")
    names = [name for name in read_list(required) if isinstance(name, str)]
    for name, part in read_mapping(out.get("properties")).items():
        if (
            isinstance(part, dict)
            and isinstance(part.get("required"), bool)
            and part.pop("required")
        ):
            names.append(name)
    if isinstance(required, list) or names:
        out["required"] = list(dict.fromkeys(names))
    if isinstance(out.get("items"), list):
        places, further = out.pop("items"), out.pop("additionalItems", True)
        out |= {"prefixItems": places} if places else {}
        if further is False:
            out["maxItems"] = min(len(places), out.get("maxItems", len(places)))
        else:
            out["items"] = _modernise(further, depth + 1)
    if "array" in list_types(out) and "items" not in out:
        out["items"] = {}
    if isinstance(out.get("enum"), list):
        choices = {json.dumps(value, sort_keys=True): value for value in out.pop("enum")}
        out |= {"enum": list(choices.values())} if choices else {}
    return out


def _collect_branches(node: Any, root: Schema, depth: int) -> tuple[dict[str, list[Any]], set[str]]:
    """(name -> the schemas that branches give it, names that every branch requires). A property of
    a schema itself stands for those of its branches."""
    schema = resolve(node, root)
    own = read_mapping(schema.get("properties"))
    properties: dict[str, list[Any]] = {name: [part] for name, part in own.items()}
    spend_steps(1 + len(own))
    required = set(filter(_is_text, read_list(schema.get("required"))))
    if depth > _MOST_NESTED:
        return properties, required
    is_open = depth or any(key in schema for key in _REFUSED_ROOT)
    for key in ("allOf", "anyOf", "oneOf", "then", "else") if is_open else ():
        value = schema.get(key)
        parts = read_list(value) if key.endswith("Of") else [value] if key in schema else []
        branches = [_collect_branches(part, root, depth + 1) for part in parts[:_MOST_BRANCHES]]
        for found, _ in branches:
            for name, variants in found.items():
                spend_steps(len(variants))
                if name not in own:
                    properties.setdefault(name, []).extend(variants)
        needs = [names for _, names in branches]
        if needs and key.endswith("Of"):
            required |= set.union(*needs) if key == "allOf" else set.intersection(*needs)
    return properties, required


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _join_variants(variants: list[Any]) -> Any:
    """One schema that takes what any of them takes: the choices of all where each lists some."""
    distinct = list({json.dumps(part, sort_keys=True): part for part in variants}.values())
    if len(distinct) == 1:
        return distinct[0]
    choices = [part.get("enum", [part["const"]] if "const" in part else None)
               if isinstance(part, Mapping) else None for part in distinct]  # fmt: skip
    if not all(isinstance(values, list) for values in choices):
        return {"anyOf": distinct}
    head = {key: value for key, value in distinct[0].items() if key not in ("const", "enum")}
    listed = {json.dumps(value): value for values in choices for value in values or ()}
    return {**head, "enum": list(listed.values())}


def _drop_references(node: Any, lost: set[str], depth: int) -> Any:
    """A schema without references that lead nowhere: any value is right there."""
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return node
    fields = {key: value for key, value in node.items() if key != "$ref" or value not in lost}
    return _map_inner(fields, lambda part: _drop_references(part, lost, depth + 1))


_PROSE = ("description", "title", "$comment", "markdownDescription")
_SPARED = ("examples", "example", "default")  # authored values that a model can do without
_LONGEST_SPARED = 1_000
_LEAST, _LEAST_OF_ALL = 80, 2_000  # characters that stay of a text, and of few texts together
_SHORTEST = 8  # characters of a text that is worth its key


def shorten_texts(schema: Schema, most: int, longest: int) -> dict[str, Any]:
    """The schema with its descriptions shortened from the longest, until it has at most `most`
    characters or little of them is left: types, choices and limits stay. longest: of any text."""
    room = most - len(json.dumps(_limit_prose(schema, 0, 0), ensure_ascii=False))
    texts = list(_list_prose(schema, 0))
    room -= sum(len(key) + 8 for key, _ in texts)
    lengths, limit = sorted(min(length, longest) for _, length in texts), longest
    for at, length in enumerate(lengths):
        share = max(0, room) // (len(lengths) - at)
        if length > share:
            limit = max(share, min(_LEAST, _LEAST_OF_ALL // len(lengths)))
            break
        room -= length
    return _limit_prose(schema, limit, 0)


def _list_prose(node: Any, depth: int) -> Iterator[tuple[str, int]]:
    """(key, length) of each text."""
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return
    for key in _PROSE:
        if isinstance(node.get(key), str):
            yield key, len(node[key])
    for _, inner in _iterate_inner(node):
        yield from _list_prose(inner, depth + 1)


def _limit_prose(node: Any, limit: int, depth: int) -> Any:
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return node
    fields = {}
    for key, value in node.items():
        if key in _PROSE and isinstance(value, str):
            if limit <= _SHORTEST:
                continue
            value = shorten_text(value, limit)
        elif key in _SPARED and len(json.dumps(value)) > _LONGEST_SPARED:
            continue
        fields[key] = value
    return _map_inner(fields, lambda part: _limit_prose(part, limit, depth + 1))
