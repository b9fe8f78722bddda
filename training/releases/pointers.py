"""The pointers of champions and releases on disk: one lock, histories, moves of several at once.

    champions/<role>.json  HISTORY.jsonl     who serves a role; every change and every candidate
    releases/HEAD.json     HISTORY.jsonl     the release that is made; every one that was
    releases/MOVING.json                     a move of several pointers that is under way

A file system moves one file at a time. A move of several is therefore written down first: from the
moment MOVING.json is there, readers here see all of it, and the next writer finishes it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warehouse.storage.files import locked, write_atomically

MOVING = "releases/MOVING.json"
CHAMPIONS, RELEASES, SERVED, DECISIONS = (
    "champions/HISTORY.jsonl", "releases/HISTORY.jsonl", "releases/SERVED.jsonl",
    "releases/DECISIONS.jsonl",
)  # fmt: skip
Json = dict[str, Any]


class PointerBroken(ValueError):
    """A pointer that cannot be read; the message names the file and the mend."""


def read(home: Path, name: str, mend: str) -> Json | None:
    """The JSON object in `<home>/<name>`, as the move under way has it; None where there is none.

    Raises PointerBroken.
    """
    coming = moving(home).get("files", {}).get(name)
    return coming if coming is not None else on_disk(home, name, mend)


def on_disk(home: Path, name: str, mend: str) -> Json | None:
    """The JSON object in `<home>/<name>`, whatever is under way. Raises PointerBroken."""
    path = home / name
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise PointerBroken(f"{path}: cannot be read ({said}), expected JSON; {mend}") from error
    if not isinstance(body, dict):
        found = type(body).__name__
        raise PointerBroken(f"{path}: holds a {found}, expected a JSON object; {mend}")
    return body


def write(home: Path, name: str, body: Mapping[str, Any]) -> None:
    """Moves one pointer; the same content again is no write. Raises OSError naming the file."""
    data = json.dumps(body, indent=1, ensure_ascii=False).encode()
    path = home / name
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def history(home: Path, name: str) -> list[Json]:
    """The lines of a history, oldest first, with those of the move under way; what is no JSON
    object is passed over."""
    lines = _lines(home / name)
    coming = moving(home).get("lines", {}).get(name, [])
    return [*lines, *(line for line in coming if line not in lines)]


def add(home: Path, name: str, lines: Sequence[Json]) -> None:
    """Adds lines that are not there yet. The file is written whole: half a line of a full disk
    would take the next one with it."""
    known = _lines(home / name)
    new = [line for line in lines if line not in known]
    if new:
        body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [*known, *new])
        write_atomically(home / name, body.encode())


@contextmanager
def held(home: Path) -> Iterator[None]:
    """Holds the lock of all pointers across processes, a move that was cut short finished first."""
    with locked(home / "releases" / ".lock"):
        finish(home)
        yield


def move(home: Path, *, files: Mapping[str, Json], lines: Mapping[str, Sequence[Json]]) -> None:
    """Moves several pointers as one, under the lock. `files`: path under home -> its new content,
    in the order of writing; `lines`: history -> lines to add."""
    body = {"files": dict(files), "lines": {name: list(part) for name, part in lines.items()}}
    write_atomically(home / MOVING, json.dumps(body, ensure_ascii=False).encode())
    finish(home)


def finish(home: Path) -> None:
    """Does what is left of a move; each step done twice is done once."""
    body = moving(home)
    if not body:
        return
    for name, content in body["files"].items():
        write(home, name, content)
    for name, part in body["lines"].items():
        add(home, name, part)
    (home / MOVING).unlink()


def moving(home: Path) -> Json:
    """The move under way; empty when there is none."""
    path = home / MOVING
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PointerBroken(
            f"{path}: cannot be read ({error}), expected the move of pointers that was cut short;"
            " delete it and say again what to serve: `toolmill release rollback --to ID`"
        ) from error


def _lines(path: Path) -> list[Json]:
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
