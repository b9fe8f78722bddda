"""The texts of an outside set, out of a file of whatever shape: JSON Lines, a JSON list, or CSV."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_json_lines, read_text, require_object

FIELDS = ("instruction", "query", "question", "text", "prompt", "utterance", "input")


def read_texts(path: Path, field: str | None = None) -> list[str]:
    """The text of every row, in order. field: None takes the first of FIELDS that the rows have,
    whatever its case. Raises UnusableInput."""
    rows = list(_iterate_rows(path))
    if not rows:
        raise UnusableInput(f"{path}: found no rows; expected one JSON object a line, or a CSV")
    name = _choose_field(path, rows[0][1], field)
    return [_read_field_text(where, row, name) for where, row in rows]


def _iterate_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, the row)."""
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), 2):
            yield f"{path}, row {number}", row
    elif text.lstrip().startswith("["):
        for number, row in enumerate(parse_json(text, path), 1):
            where = f"{path}, entry {number}"
            yield where, require_object(row, where)
    else:
        for number, row in read_json_lines(path):
            yield f"{path}, line {number}", row


def _choose_field(path: Path, row: Mapping[str, Any], wanted: str | None) -> str:
    names = {str(name).casefold(): str(name) for name in row}
    for name in (wanted,) if wanted else FIELDS:
        if name.casefold() in names:
            return names[name.casefold()]
    expected = f"field {wanted!r}" if wanted else f"one of {', '.join(FIELDS)}"
    held = ", ".join(list(names.values())[:12]) or "none"
    raise UnusableInput(
        f"{path}: found fields {held[:300]}; expected {expected}; name it by --field"
    )


def _read_field_text(where: str, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        found = type(value).__name__
        raise UnusableInput(f"{where}: {name!r} is {found}; expected a text")
    return value
