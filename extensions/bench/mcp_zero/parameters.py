"""MCP-Zero's parameters, `"city": "(Optional, string) where"`, as JSON Schema and back."""

import re
from collections.abc import Mapping
from typing import Any

from warehouse.sanitize.redact import redact

_TYPE_NOTE = re.compile(r"\s*\(\s*([^()]{0,80})\)\s*")
_OPTIONAL, _REQUIRED = "optional", "required"
_TYPES = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "json", "dictionary"), "object"),
}
_MOST = 200  # parameters of one tool
_LONGEST = 4_000  # characters of a description
_LONGEST_NAME = 300


def make_schema(parameters: Any) -> dict[str, Any]:
    """The input schema of a tool's `parameter`; one that is no object takes anything.

    A parameter that does not say that it is optional is required. A type that JSON Schema does not
    have stays in the description.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        return {"type": "object"}
    properties: dict[str, Any] = {}
    required: list[str] = []
    short = [pair for pair in parameters.items() if len(str(pair[0])) <= _LONGEST_NAME]
    for name, parameter in short[:_MOST]:
        properties[str(name)], optional = _read_parameter(parameter)
        required += [] if optional else [str(name)]
    return {"type": "object", "properties": properties, "required": required}


def write_parameters(contract: Mapping[str, Any]) -> dict[str, str]:
    """The `parameter` of a contract; {} where it takes none."""
    schema = contract.get("inputSchema") or {}
    properties = schema.get("properties")
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    described = {}
    for name, one in (properties if isinstance(properties, Mapping) else {}).items():
        one = one if isinstance(one, Mapping) else {}
        kind = one.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        words = " or ".join(one for one in kinds if isinstance(one, str)) or "any"
        head = words if name in required else f"Optional, {words}"
        about = " ".join(str(one.get("description") or "").split())[:_LONGEST]
        described[name] = f"({head}) {about}".strip()
    return described


def _read_parameter(parameter: Any) -> tuple[dict[str, Any], bool]:
    """(schema of one parameter, whether it is optional)."""
    if isinstance(parameter, Mapping):
        parameter = f"({parameter.get('type') or ''}) {parameter.get('description') or ''}"
    text = redact("" if parameter is None else str(parameter)[:_LONGEST])
    found = _TYPE_NOTE.match(text)
    if found is None:
        return ({"description": text} if text else {}), False
    parts = [part.strip() for part in found[1].split(",")]
    optional = any(part.lower() == _OPTIONAL for part in parts)
    kinds = [part for part in parts if part.lower() not in (_OPTIONAL, _REQUIRED, "", "any")]
    about = text[found.end() :].strip()
    schema: dict[str, Any] = {}
    names = [_TYPES.get(word.strip().lower()) for word in (kinds or [""])[0].split(" or ")]
    if len(kinds) == 1 and None not in names:
        schema["type"] = names[0] if len(names) == 1 else names
    elif kinds:
        about = f"({', '.join(kinds)}) {about}".strip()
    return ({**schema, "description": about} if about else schema), optional
