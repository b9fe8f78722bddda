"""Files of rows of calls, as `toolmill bfcl` reads them."""

from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.user_files import read_json_lines

_CALL = '{"name": "...", "arguments": {...}}'


def read_rows(path: Path) -> list[tuple[int, str, list[Any]]]:
    """(line, id, calls) of each row of a calls file."""
    rows = []
    for line, row in read_json_lines(path):
        where = f"{path}, line {line}"
        if not isinstance(row.get("id"), str) or not isinstance(row.get("calls"), list):
            expected = f'{{"id": "...", "calls": [{_CALL}, ...]}}'
            raise UnusableInput(f"{where}: found {row!r:.120}; expected {expected}")
        calls = [_parse_call(call, f"{where}, call {i}") for i, call in enumerate(row["calls"])]
        rows.append((line, row["id"], calls))
    if not rows:
        raise UnusableInput(f'{path}: empty; expected {{"id": "...", "calls": [{_CALL}]}} a line')
    return rows


def _parse_call(value: Any, where: str) -> dict[str, Any]:
    """A call that a model wrote: arguments that are no object are a verdict, not an error."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise UnusableInput(f"{where}: found {value!r:.120}; expected a call {_CALL}")
    return value
