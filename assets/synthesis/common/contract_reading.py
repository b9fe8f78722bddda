"""What a tool takes, read from its contract without a model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from assets.synthesis.common.purpose import LONGEST
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, JsonObject, Schema


@dataclass(frozen=True)
class Slot:
    """One parameter, with `$ref`, `allOf` and nullable unions resolved."""

    name: str
    schema: Schema
    required: bool
    words: tuple[str, ...]
    hint: str  # the description, one line
    about: str = ""  # the words of the tool's name and of all its parameters
    theme: str = ""  # what the tool says it does, in its own words

    @property
    def type(self) -> str:
        return guess_json_type(self.schema)


def get_input_schema(contract: Contract) -> JsonObject:
    """The input schema; empty where it is none."""
    schema = contract.get("inputSchema")
    return schema if isinstance(schema, Mapping) else {}


def get_properties(contract: Contract) -> JsonObject:
    """Parameter -> schema, as declared at the top; empty where that is odd."""
    properties = get_input_schema(contract).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def get_required(contract: Contract) -> list[str]:
    """The names of the required parameters; empty where the list is odd."""
    names = get_input_schema(contract).get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def read_slots(contract: Contract) -> list[Slot]:
    """The parameters of a contract: required ones first, each resolved one level."""
    schema, properties = get_input_schema(contract), get_properties(contract)
    required = schema.get("required") or []
    about = " ".join([*split_identifier(str(contract.get("name"))), *properties]).lower()[:400]
    description = str(contract.get("description") or "")[:LONGEST]
    documented = _read_documented_parameters(description)
    theme = f"{about} {description[:300]}".lower()
    found = [
        _make_slot(name, resolve_schema(of, schema), name in required, documented.get(name, ""),
                   about=about, theme=theme)
        for name, of in properties.items()
    ]  # fmt: skip
    return sorted(found, key=lambda slot: not slot.required)


def read_fields(schema: Schema, root: Schema) -> list[Slot]:
    """The members of an object schema, as slots."""
    required = schema.get("required") or []
    properties = schema.get("properties") or {}
    return [
        _make_slot(name, resolve_schema(s, root), name in required)
        for name, s in properties.items()
    ]


_DOCUMENTED = re.compile(
    r"(?:[-*]\s+)?[`*]{0,2}(\w+)[`*]{0,2}\s*(?:\([^)]*\))?\s*[:\uff1a-]\s*(.+)"
)


def _read_documented_parameters(description: str) -> dict[str, str]:
    """Parameter -> what a docstring's `Args:` section says of it."""
    lines = (line.strip()[:400] for line in description.splitlines())
    matches = (_DOCUMENTED.match(line) for line in lines)
    return {match.group(1): match.group(2) for match in matches if match}


def _make_slot(
    name: str, schema: Schema, required: bool, documented: str = "", **beside: str
) -> Slot:
    hint = " ".join(f"{schema.get('description') or documented}"[:1000].split())
    return Slot(name, schema, required, split_identifier(name), hint, **beside)


def resolve_schema(schema: Json, root: Schema, depth: int = 0) -> dict[str, Json]:
    """One schema with local `$ref`, `allOf` and nullable unions folded in; {} when it has none."""
    if not isinstance(schema, Mapping) or depth > 4:
        return {}
    merged = dict(schema)
    ref = merged.pop("$ref", None)
    if isinstance(ref, str) and ref.startswith("#/"):
        target: Json = root
        for part in ref[2:].split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        merged = {**resolve_schema(target, root, depth + 1), **merged}
    for part in _list_members(merged.pop("allOf", None)):
        merged = {**merged, **resolve_schema(part, root, depth + 1)}
    for union in ("anyOf", "oneOf"):
        options = (
            resolve_schema(o, root, depth + 1) for o in _list_members(merged.pop(union, None))
        )
        real = next((option for option in options if guess_json_type(option) != "null"), {})
        merged = {**real, **merged}
    return merged


def _list_members(value: Json) -> list[Json]:
    """A combinator's members; a hostile schema may nest hundreds in hundreds."""
    return value[:8] if isinstance(value, list) else []


def guess_json_type(schema: Schema) -> str:
    """The one JSON type a value should have: the first that is not null, guessed when absent."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "const" in schema or schema.get("enum"):
        sample = schema.get("const", (schema.get("enum") or [None])[0])
        return {bool: "boolean", int: "integer", float: "number", type(None): "null"}.get(
            type(sample), "string"
        )
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"
