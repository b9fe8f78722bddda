"""Pointers to what is current: a small JSON file that moves whole, and the history of its moves.

Tables, champions, releases and the router's index all name their current version so. A writer holds
a lock of its own; a reader needs none, and a running reader notices the new file by its stat.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warehouse.storage.files import write_atomically

Json = dict[str, Any]


class PointerBroken(ValueError):
    """A pointer that cannot be read; the message names the file and the fix."""


def read_pointer(path: Path, fix: str) -> Json | None:
    """The JSON object in the file; None where there is none. Raises PointerBroken, with `fix`."""
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise PointerBroken(f"{path}: cannot be read ({reason}), expected JSON; {fix}") from error
    if not isinstance(body, dict):
        found = type(body).__name__
        raise PointerBroken(f"{path}: holds a {found}, expected a JSON object; {fix}")
    return body


def write_pointer(path: Path, body: Mapping[str, Any]) -> None:
    """Moves a pointer; the same content again is no write. Raises OSError naming the file."""
    data = json.dumps(body, indent=1, ensure_ascii=False).encode()
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def read_history(path: Path) -> list[Json]:
    """The lines of a history, oldest first; what is no JSON object is passed over."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    found = []
    for line in text.split("\n"):  # splitlines would also part a string at U+2028
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if isinstance(body, dict):
            found.append(body)
    return found


def add_history(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Adds lines that are not there yet. The file is written whole: half a line of a full disk
    would take the next one with it."""
    known = read_history(path)
    new = [line for line in lines if line not in known]
    if new:
        body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [*known, *new])
        write_atomically(path, body.encode())
