"""`toolmill match`: files with a schema, expected calls and called ones in, verdicts out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.contracts.match.match import MatchResult, ParallelResult, match_call, match_parallel
from warehouse.errors import UnusableInput
from warehouse.json_types import JsonObject
from warehouse.sanitize.untrusted_text import find_repeated_name
from warehouse.user_files import parse_json, read_json_lines, read_text

_CALL = '{"name": "...", "arguments": {...}}'
_SCHEMA = (
    "a tool contract, its input schema, an OpenAI function, or a list or mapping of them by name"
)


@dataclass(frozen=True)
class ToolSchemas:
    """Input schemas by tool name; `alone` where one came without a name and serves every call."""

    named: dict[str, Any]
    alone: Any = None

    def of(self, name: Any) -> Any:
        """The schema of a tool; None where there is none."""
        return self.named.get(name, self.alone) if isinstance(name, str) else self.alone


def read_json(path: Path) -> Any:
    """The JSON value of a file, in which no object names anything twice."""
    return parse_json(read_text(path), path, object_pairs_hook=_reject_duplicates)


def read_calls(path: Path, any_arguments: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """(calls, whether the file holds a list of them)."""
    return parse_calls(read_json(path), path, any_arguments)


def parse_calls(value: Any, path: Path, any_arguments: bool = False) -> tuple[list[Any], bool]:
    """The calls of a file's value; see `read_calls`."""
    if not isinstance(value, list):
        return [_parse_call(value, str(path), any_arguments)], False
    return [
        _parse_call(entry, f"{path}, entry {i}", any_arguments) for i, entry in enumerate(value)
    ], True


def read_rows(path: Path) -> list[tuple[int, str, list[Any]]]:
    """(line, id, calls) of each row of a calls file."""
    rows = []
    for line, row in read_json_lines(path):
        where = f"{path}, line {line}"
        if not isinstance(row.get("id"), str) or not isinstance(row.get("calls"), list):
            description = ", ".join(
                f"{key} {_name_kind(value)}" for key, value in list(row.items())[:6]
            )
            raise UnusableInput(
                f"{where}: found {description or 'an empty object'};"
                f' expected {{"id": "...", "calls": [{_CALL}, ...]}}'
            )
        calls = [
            _parse_call(call, f"{where}, call {i}", True) for i, call in enumerate(row["calls"])
        ]
        rows.append((line, row["id"], calls))
    if not rows:
        raise UnusableInput(f'{path}: empty; expected {{"id": "...", "calls": [{_CALL}]}} a line')
    return rows


def _parse_call(value: Any, where: str, any_arguments: bool) -> dict[str, Any]:
    """A call; where a model wrote it, arguments that are no object are a verdict, not an error."""
    if not isinstance(value, dict):
        raise UnusableInput(f"{where}: found {_name_kind(value)}; expected a call {_CALL}")
    if not isinstance(value.get("name"), str):
        has_name = "name" in value
        description = (
            f"name {_name_kind(value['name'])}" if has_name else f"{list(value)[:6]}, no name"
        )
        raise UnusableInput(f"{where}: found {description}; expected a call {_CALL}")
    arguments = value.get("arguments")
    if not any_arguments and not isinstance(arguments, dict | None):
        raise UnusableInput(
            f"{where}: arguments are {_name_kind(arguments)}; expected an object: {_CALL}"
        )
    return value


def read_schemas(path: Path) -> ToolSchemas:
    """The input schemas of a file: a contract, a schema, a function's doc, or several of them."""
    value = read_json(path)
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    if isinstance(value, list):
        schemas_by_name: dict[str, Any] = {}
        for i, entry in enumerate(value):
            name, schema = _parse_named_schema(entry)
            if name is None or schema is None:
                raise UnusableInput(
                    f"{path}, entry {i}: found {_name_kind(entry)} without name and input schema;"
                    f" expected {_SCHEMA}"
                )
            if name in schemas_by_name and schemas_by_name[name] != schema:
                raise UnusableInput(
                    f"{path}, entry {i}: a second, other schema of {name!r}; leave one of them"
                )
            schemas_by_name[name] = schema
        return ToolSchemas(schemas_by_name)
    if not isinstance(value, dict):
        raise UnusableInput(f"{path}: found {_name_kind(value)}; expected {_SCHEMA}")
    name, schema = _parse_named_schema(value)
    if schema is not None:
        return ToolSchemas({name: schema} if name else {}, None if name else schema)
    if _is_mapping(value):
        inner = {key: (entry, _parse_named_schema(entry)[1]) for key, entry in value.items()}
        return ToolSchemas(
            {
                key: entry if inner_schema is None else inner_schema
                for key, (entry, inner_schema) in inner.items()
            }
        )
    return ToolSchemas({}, value)


def _parse_named_schema(value: Any) -> tuple[str | None, Any]:
    """(name, input schema) of a tool contract or a function's doc; (None, None) for another."""
    if not isinstance(value, dict):
        return None, None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name")
    for key in ("inputSchema", "input_schema", "parameters"):
        if isinstance(value.get(key), dict):
            return (name if isinstance(name, str) else None), value[key]
    # Some servers list a tool that takes nothing without any schema.
    alone = isinstance(name, str) and not {"type", "properties"} & value.keys()
    return (name, {}) if alone and isinstance(name, str) else (None, None)


_WORDS = {
    *("type", "properties", "required", "$ref", "$schema", "anyOf", "oneOf", "allOf", "enum"),
    *("const", "$defs", "definitions", "additionalProperties", "patternProperties", "if"),
    *("items", "title", "description"),
}


def _is_mapping(value: JsonObject) -> bool:
    """Whether these are schemas by tool name, and not one schema."""
    return bool(value) and not _WORDS & value.keys() and all(
        isinstance(entry, dict) for entry in value.values()
    )  # fmt: skip


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = find_repeated_name(pairs)
        raise ValueError(f"{twice!r:.80} stands twice in one object; leave one of them")
    return members


def _name_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    kinds |= {int: "a number", float: "a number", type(None): "null"}
    return kinds.get(type(value), type(value).__name__)


def match_files(schema: Path, expected: Path, called: Path) -> MatchResult | ParallelResult:
    """The verdict on the calls of three files: one call each, or lists of parallel calls.

    Raises UnusableInput.
    """
    schemas = read_schemas(schema)
    expected_calls, several = read_calls(expected)
    calls, also = read_calls(called, any_arguments=True)
    schemas_by_name = {
        call["name"]: find_schema(schemas, call["name"], schema) for call in expected_calls
    }
    if several or also:
        return match_parallel(schemas_by_name, expected_calls, calls)
    return match_call(schemas_by_name[expected_calls[0]["name"]], expected_calls[0], calls[0])


def find_schema(schemas: ToolSchemas, name: str, path: Path) -> Any:
    """The input schema of a tool. Raises UnusableInput where `path` has none of that name."""
    schema = schemas.of(name)
    if schema is None:
        tool_names = ", ".join(sorted(schemas.named)[:8]) or "none"
        raise UnusableInput(
            f"{path}: no tool {name[:80]!r}, which a call is expected of; it has"
            f" {tool_names[:300]}; give that tool's contract, or an input schema alone"
        )
    return schema
