"""The four tools' JSON schemas, short because a model reads them in every session (3,100
characters), and reading arguments field by field."""

import json
from collections.abc import Mapping
from typing import Any

from assets.servers.calls.log import REPORTS

FIND, DESCRIBE, CALL, REPORT = "find_tools", "describe_tool", "call_tool", "report_outcome"
MAX_K = 50
MAX_QUERY = 10_000  # characters of a query; the router reads the first 4,000
MAX_TEXT = 200_000  # characters of a model's text that may hold requests
MAX_EXCLUDE = 1_000
MAX_REQUESTS = 20  # of one call
LEAST_TOKENS, MAX_TOKENS = 60, 20_000  # that an answer may be held to
MAX_NOTE = 500

_TOOL_ID = {"type": "string", "description": "as find_tools gave it: <server_id>::<tool>"}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_TEXT = {"type": "string"}
REQUEST: dict[str, Any] = {"query": _TEXT, "server": _TEXT, "tool": _TEXT}
MAX_ARGUMENTS = 400_000  # characters of one call's arguments as JSON
MAX_DEPTH = 40
MAX_ID = 1_000  # characters of a tool id as it is shown; the longest of 12,600 real ones has 168


def _make_output(**kinds: str) -> dict[str, Any]:
    """A schema that names the members of an answer: what is in them is third-party data."""
    kinds = {"index": "string null", "error": "object", **kinds}
    types = {name: kind.split() for name, kind in kinds.items()}
    properties = {name: {"type": kind} if kind else {} for name, kind in types.items()}
    return {"type": "object", "properties": properties, "required": ["index"]}


def _make_input(*required: str, **properties: Any) -> dict[str, Any]:
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": list(required)} if required else shape


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
        max_tokens=_make_number(LEAST_TOKENS, MAX_TOKENS, "most tokens of the answer"),
        shown={**_TEXTS, "description": "tool ids shown before: they and their twins stay out"},
        exclude={**_TEXTS, "description": "tool ids that failed: a twin may stand in"},
        context={"type": "string", "description": "what the conversation is about"},
        parameters={"type": "boolean", "description": "show parameters too", "default": False},
    ),
    DESCRIBE: _make_input("tool_id", tool_id=_TOOL_ID),
    CALL: _make_input(
        "tool_id",
        tool_id=_TOOL_ID,
        # Clients that make schemas strict close an object that does not say that it is open.
        arguments={
            "type": "object",
            "additionalProperties": True,
            "description": "as its contract asks",
        },
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
        answers="array", tokens="integer", gone="array", requests_left_out="integer", stop="string"
    ),
    DESCRIBE: _make_output(
        tool_id="string", contract="object", contract_digest="string", cut="boolean",
        flags="array", marketplaces="array", reliability="object null", runs="string",
        callable="boolean", consent="object",
    ),
    CALL: _make_output(
        call_id="string", tool_id="string", status="string", seconds="number", repaired="array",
        problems="array", text="string", structured="", cut="boolean", findings="array",
        reason="string",
    ),
    REPORT: _make_output(recorded="boolean", kept="string"),
}  # fmt: skip


class BadField(ValueError):
    """A field that cannot be used, with what was found and expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        super().__init__(f"{field} is {found}; expected {expected}")
        self.field = field


class ArgumentFields:
    def __init__(self, given: Mapping[str, Any], known: Mapping[str, Any], at: str = "") -> None:
        for name in given:
            if name not in known:
                raise BadField(f"{at}{name[:60]}", "unknown", f"one of {', '.join(known)}")
        self._given, self._at = given, at

    def _read(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """A value; JSON text of this kind is read, as some clients send all but text that way."""
        value = self._given.get(name)
        if not isinstance(value, str) or len(value) > MAX_ARGUMENTS:
            return value
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found if isinstance(found, kind) else value

    def text(self, name: str, most: int) -> str | None:
        """A text that is not blank, None where it is left out."""
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise BadField(f"{self._at}{name}", _name_kind(value), "a text")
        if len(value) > most:
            size = f"{len(value):,} characters long"
            raise BadField(f"{self._at}{name}", size, f"at most {most:,}")
        return value.strip() or None

    def needed(self, name: str, most: int = MAX_ID) -> str:
        value = self.text(name, most)
        if value is None:
            raise BadField(name, "missing or blank", "a text")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self._read(name, (int, float))
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadField(name, _name_kind(value), f"a whole number from {least} to {most}")
        if not least <= value <= most:
            written = str(value) if abs(value) < 10**12 else "huge"
            raise BadField(name, written, f"{least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        value = self._read(name, bool)
        if value is not None and not isinstance(value, bool):
            raise BadField(name, _name_kind(value), "true or false")
        return bool(value)

    def texts(self, name: str, most: int, longest: int = MAX_ID) -> tuple[str, ...]:
        value = self._read(name, list)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadField(name, _name_kind(value), "a list of texts")
        if len(value) > most:
            raise BadField(name, f"{len(value):,} entries long", f"at most {most:,}")
        if any(len(item) > longest for item in value):
            raise BadField(name, "too long in one entry", f"at most {longest:,} characters each")
        return tuple(value)

    def objects(self, name: str, most: int, known: Mapping[str, Any]) -> list["ArgumentFields"]:
        """A list of objects, each to be read by field; [] where it is left out."""
        value = self._read(name, list)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise BadField(name, _name_kind(value), "a list of objects")
        if not 1 <= len(value) <= most:
            raise BadField(name, f"{len(value):,} entries long", f"1 to {most:,}")
        return [ArgumentFields(one, known, f"{name}[{at}].") for at, one in enumerate(value)]

    def choice(self, name: str, known: tuple[str, ...], default: str | None = None) -> str:
        """One of some words; the default, where there is one, for what is left out."""
        value = self._given.get(name, default)
        if not isinstance(value, str) or value not in known:
            written = repr(value[:60]) if isinstance(value, str) else _name_kind(value)
            raise BadField(name, written, f"one of {', '.join(known)}")
        return value

    def arguments(self, name: str, anything: bool = False) -> Any:
        """The arguments of a call: an object that is neither deep nor huge; what is left out counts
        as {}. anything: other values too, for somebody to fix."""
        value = self._given.get(name) if anything else self._read(name, dict)
        if value is None:
            return {}
        if not anything and not isinstance(value, dict):
            raise BadField(name, _name_kind(value), "an object")
        if is_deeper_than(value, MAX_DEPTH):
            raise BadField(name, "nested too deep", f"at most {MAX_DEPTH} levels")
        size = len(json.dumps(value, ensure_ascii=False))
        if size > MAX_ARGUMENTS:
            raise BadField(name, f"{size:,} characters of JSON", f"at most {MAX_ARGUMENTS:,}")
        return value


def is_deeper_than(value: Any, most: int) -> bool:
    """Whether a JSON value has more levels, without recursion."""
    level = [value]
    for _ in range(most):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _name_kind(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number"}
    return {**names, str: "a text", list: "a list", dict: "an object"}.get(type(value), "unknown")
