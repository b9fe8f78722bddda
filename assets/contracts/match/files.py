"""The files of `toolmill match`: a schema, expected calls, called ones, rows of calls."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CAP = 64 * 1024 * 1024
_CALL = '{"name": "...", "arguments": {...}}'
_SCHEMA = (
    "a tool contract, its input schema, an OpenAI function, or a list or mapping of them by name"
)


class UnreadableInput(ValueError):
    """A file that is not what the command takes: the message names the file and the fix."""


@dataclass(frozen=True)
class Schemas:
    """Input schemas by tool name; `alone` where one came without a name and serves every call."""

    named: dict[str, Any]
    alone: Any = None

    def of(self, name: Any) -> Any:
        """The schema of a tool; None where there is none."""
        return self.named.get(name, self.alone) if isinstance(name, str) else self.alone


def read_json(path: Path) -> Any:
    """The JSON value of a file, in which no object names anything twice."""
    text = _read_text(path)
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicates)
    except RecursionError:
        raise UnreadableInput(f"{path}: nested too deep to be read") from None
    except _Twice as error:
        raise UnreadableInput(
            f"{path}: {error} stands twice in one object; leave one of them"
        ) from None
    except ValueError as error:
        found = f"not JSON ({error})" if text.strip() else "empty"
        raise UnreadableInput(f"{path}: {found}; give one JSON value") from None


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a file of JSON Lines."""
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = "nested too deep" if isinstance(error, RecursionError) else error
            raise UnreadableInput(
                f"{path}, line {number}: not JSON ({why}); expected one JSON object a line"
            ) from None
        if not isinstance(row, dict):
            raise UnreadableInput(
                f"{path}, line {number}: found {_name_kind(row)}; expected one JSON object a line"
            )
        yield number, row


def read_calls(path: Path, any_arguments: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """(calls, whether the file holds a list of them)."""
    return parse_calls(read_json(path), path, any_arguments)


def parse_calls(value: Any, path: Path, any_arguments: bool = False) -> tuple[list[Any], bool]:
    """The calls of a file's value; see `read_calls`."""
    if not isinstance(value, list):
        return [_parse_call(value, str(path), any_arguments)], False
    return [
        _parse_call(one, f"{path}, entry {i}", any_arguments) for i, one in enumerate(value)
    ], True


def read_rows(path: Path) -> list[tuple[int, str, list[Any]]]:
    """(line, id, calls) of each row of a calls file."""
    rows = []
    for line, row in read_json_lines(path):
        where = f"{path}, line {line}"
        if not isinstance(row.get("id"), str) or not isinstance(row.get("calls"), list):
            found = ", ".join(f"{key} {_name_kind(value)}" for key, value in list(row.items())[:6])
            raise UnreadableInput(
                f"{where}: found {found or 'an empty object'};"
                f' expected {{"id": "...", "calls": [{_CALL}, ...]}}'
            )
        calls = [
            _parse_call(call, f"{where}, call {i}", True) for i, call in enumerate(row["calls"])
        ]
        rows.append((line, row["id"], calls))
    if not rows:
        raise UnreadableInput(f'{path}: empty; expected {{"id": "...", "calls": [{_CALL}]}} a line')
    return rows


def _parse_call(value: Any, where: str, any_arguments: bool) -> dict[str, Any]:
    """A call; where a model wrote it, arguments that are no object are a verdict, not an error."""
    if not isinstance(value, dict):
        raise UnreadableInput(f"{where}: found {_name_kind(value)}; expected a call {_CALL}")
    if not isinstance(value.get("name"), str):
        found = (
            f"name {_name_kind(value['name'])}"
            if "name" in value
            else f"{list(value)[:6]}, no name"
        )
        raise UnreadableInput(f"{where}: found {found}; expected a call {_CALL}")
    arguments = value.get("arguments")
    if not any_arguments and not isinstance(arguments, dict | None):
        raise UnreadableInput(
            f"{where}: arguments are {_name_kind(arguments)}; expected an object: {_CALL}"
        )
    return value


def read_schemas(path: Path) -> Schemas:
    """The input schemas of a file: a contract, a schema, a function's doc, or several of them."""
    value = read_json(path)
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    if isinstance(value, list):
        named: dict[str, Any] = {}
        for i, one in enumerate(value):
            name, schema = _parse_named_schema(one)
            if name is None or schema is None:
                raise UnreadableInput(
                    f"{path}, entry {i}: found {_name_kind(one)} without name and input schema;"
                    f" expected {_SCHEMA}"
                )
            if name in named and named[name] != schema:
                raise UnreadableInput(
                    f"{path}, entry {i}: a second, other schema of {name!r}; leave one of them"
                )
            named[name] = schema
        return Schemas(named)
    if not isinstance(value, dict):
        raise UnreadableInput(f"{path}: found {_name_kind(value)}; expected {_SCHEMA}")
    name, schema = _parse_named_schema(value)
    if schema is not None:
        return Schemas({name: schema} if name else {}, None if name else schema)
    if _is_mapping(value):
        inner = {key: (one, _parse_named_schema(one)[1]) for key, one in value.items()}
        return Schemas(
            {key: one if found is None else found for key, (one, found) in inner.items()}
        )
    return Schemas({}, value)


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


def _is_mapping(value: Mapping[str, Any]) -> bool:
    """Whether these are schemas by tool name, and not one schema."""
    return bool(value) and not _WORDS & value.keys() and all(
        isinstance(one, dict) for one in value.values()
    )  # fmt: skip


class _Twice(ValueError):
    pass


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise _Twice(repr(twice)[:80])
    return found


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_CAP + 1)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or 'it cannot be opened'}") from error
    if len(data) > _CAP:
        raise UnreadableInput(f"{path}: more than {_CAP:,} bytes; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _name_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    kinds |= {int: "a number", float: "a number", type(None): "null"}
    return kinds.get(type(value), type(value).__name__)
