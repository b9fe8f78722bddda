"""The texts of an outside set, out of a file of whatever shape: JSON Lines, a JSON list, or CSV."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput

FIELDS = ("instruction", "query", "question", "text", "prompt", "utterance", "input")
_MOST_BYTES = 512 * 1024 * 1024


class UnreadableSet(UnusableInput):
    """An outside set that cannot be read: which file, what was found, what to do."""


def read_texts(path: Path, field: str | None = None) -> list[str]:
    """The text of every row, in order. field: None takes the first of FIELDS that the rows have,
    whatever its case. Raises UnreadableSet."""
    rows = list(_iterate_rows(path))
    if not rows:
        raise UnreadableSet(f"{path}: found no rows; expected one JSON object a line, or a CSV")
    name = _choose_field(path, rows[0][1], field)
    return [_read_field_text(path, where, row, name) for where, row in rows]


def _iterate_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, the row)."""
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise UnreadableSet(f"{path}: found {size:,} bytes; expected at most {_MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", None) or error
        raise UnreadableSet(f"{path}: {told}; expected a file of UTF-8 text") from error
    if path.suffix.lower() == ".csv":
        for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), 2):
            yield f"row {number}", row
    elif text.lstrip().startswith("["):
        for number, row in enumerate(_parse_json_text(path, "the file", text), 1):
            yield f"entry {number}", _require_object(path, f"entry {number}", row)
    else:
        # Not splitlines(): a JSON string may hold U+2028, which that takes for the end of a line.
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                where = f"line {number}"
                yield where, _require_object(path, where, _parse_json_text(path, where, line))


def _parse_json_text(path: Path, where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableSet(f"{path}: {where} is no JSON ({error})") from error


def _require_object(path: Path, where: str, row: Any) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        found = type(row).__name__
        raise UnreadableSet(f"{path}: {where} is a {found}; expected an object with a text field")
    return row


def _choose_field(path: Path, row: Mapping[str, Any], wanted: str | None) -> str:
    names = {str(name).casefold(): str(name) for name in row}
    for name in (wanted,) if wanted else FIELDS:
        if name.casefold() in names:
            return names[name.casefold()]
    told = f"field {wanted!r}" if wanted else f"one of {', '.join(FIELDS)}"
    held = ", ".join(list(names.values())[:12]) or "none"
    raise UnreadableSet(f"{path}: found fields {held[:300]}; expected {told}; name it by --field")


def _read_field_text(path: Path, where: str, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        found = type(value).__name__
        raise UnreadableSet(f"{path}: {where}: {name!r} is {found}; expected a text")
    return value
