"""The pointers of champions and releases on disk: one lock, histories, moves of several at once.

    champions/<role>.json  HISTORY.jsonl     who serves a role; every change and every candidate
    releases/HEAD.json     HISTORY.jsonl     the release that is made; every one that was
    releases/MOVING.json                     a move of several pointers that is under way

A file system moves one file at a time. A move of several is therefore written down first: from the
moment MOVING.json is there, readers here see all of it, and the next writer finishes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from warehouse.storage.files import (
    Json,
    add_history,
    hold_lock,
    read_history,
    read_pointer,
    write_pointer,
)

MOVING = "releases/MOVING.json"
CHAMPIONS, RELEASES, SERVED, DECISIONS = (
    "champions/HISTORY.jsonl", "releases/HISTORY.jsonl", "releases/SERVED.jsonl",
    "releases/DECISIONS.jsonl",
)  # fmt: skip


def read_current_pointer(home: Path, name: str, fix: str) -> Json | None:
    """The JSON object in `<home>/<name>`, as the move under way has it; None where there is none.

    Raises PointerBroken.
    """
    coming = read_pending_move(home).get("files", {}).get(name)
    return coming if coming is not None else read_pointer(home / name, fix)


def read_current_history(home: Path, name: str) -> list[Json]:
    """The lines of a history, oldest first, with those of the move under way."""
    lines = read_history(home / name)
    coming = read_pending_move(home).get("lines", {}).get(name, [])
    return [*lines, *(line for line in coming if line not in lines)]


@contextmanager
def hold_pointer_lock(home: Path) -> Iterator[None]:
    """Holds the lock of all pointers across processes, a move that was cut short finished first."""
    with hold_lock(home / "releases" / ".lock"):
        finish_move(home)
        yield


def move_pointers(
    home: Path, *, files: Mapping[str, Json], lines: Mapping[str, Sequence[Json]]
) -> None:
    """Moves several pointers as one, under the lock. `files`: path under home -> its new content,
    in the order of writing; `lines`: history -> lines to add."""
    body = {"files": dict(files), "lines": {name: list(part) for name, part in lines.items()}}
    write_pointer(home / MOVING, body)
    finish_move(home)


def finish_move(home: Path) -> None:
    """Does what is left of a move; each step done twice is done once."""
    body = read_pending_move(home)
    if not body:
        return
    for name, content in body["files"].items():
        write_pointer(home / name, content)
    for name, part in body["lines"].items():
        add_history(home / name, part)
    (home / MOVING).unlink()


def read_pending_move(home: Path) -> Json:
    """The move under way; empty when there is none."""
    fix = "delete it and say again what to serve: `toolmill release rollback --to ID`"
    return read_pointer(home / MOVING, fix) or {}
