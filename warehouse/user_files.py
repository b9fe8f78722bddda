"""Files that a user hands in: text, JSON, JSON Lines; each fault is told in one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput

MOST = 512 * 1024 * 1024  # bytes; 68,733 pairs with their calls are 40 MB


def read_text(path: Path, most: int = MOST) -> str:
    """The whole file; a byte order mark is no part of it. Raises UnusableInput."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        why = error.strerror or "it cannot be opened"
        raise UnusableInput(f"{path}: {why}; expected a file that can be read") from error
    if len(data) > most:
        raise UnusableInput(f"{path}: more than {most:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableInput(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def parse_json(text: str, where: object, **decoding: Any) -> Any:
    """JSON of a text at `where`; decoding: for `json.loads`. Raises UnusableInput."""
    if not text.strip():
        raise UnusableInput(f"{where}: empty; give one JSON value")
    try:
        return json.loads(text, **decoding)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        if isinstance(error, RecursionError):
            reason = "nested too deep to be read"
        elif "integer string conversion" in reason:  # Python's advice is to its own settings
            reason = "an integer of too many digits to be read"
        raise UnusableInput(f"{where}: not JSON ({reason})") from error


def read_json_lines(path: Path, **decoding: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSON Lines file. Raises UnusableInput."""
    # Not splitlines(): a JSON string may hold U+2028, which that takes for the end of a line.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            row = parse_json(line, where := f"{path}, line {number}", **decoding)
            yield number, require_object(row, where)


def require_object(row: Any, where: object) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    raise UnusableInput(f"{where}: {type(row).__name__}, expected a JSON object")
