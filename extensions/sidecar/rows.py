"""One row of the sidecar's data: a draft call in its place, and what it should have been."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from warehouse.storage.digest import digest

UNTOUCHED = "untouched"
SOURCES = ("corrupted", "drift", "execution", "drafted", UNTOUCHED)
RIGHT, WRONG, LEFT = "right", "wrong", "left"
# Marks, not content: the same draft on another side of a split is the same row.
_UNNAMED = ("row_id", "split", "ladder")
_LISTS = ("conversation", "contracts", "problems", "right")


@dataclass(frozen=True)
class RevisionRow:
    """row_id: digest of all that follows but the split and the ladder's mark. split: one of
    `training.sets.split`. conversation: messages {role, content}. contracts: the candidates as they
    are shown, likeliest first. draft_arguments: an object, or text where it cannot be read.
    problems: the validator's words, or a server's error message. right: the right call {name,
    arguments}; () where asking is right, and `question` is what to ask. kind: of the flaw, or
    "untouched". source: one of SOURCES. world: reference of a replayed world and task that can
    score the call, "" without. ladder: what the ladder alone makes of the draft: right, wrong, or
    left (it abstains); "" where nobody tried."""

    row_id: str
    split: str
    server_id: str
    conversation: tuple[Mapping[str, Any], ...]
    contracts: tuple[Mapping[str, Any], ...]
    draft_name: str
    draft_arguments: Any
    problems: tuple[str, ...]
    right: tuple[Mapping[str, Any], ...]
    question: str
    kind: str
    source: str
    world: str = ""
    ladder: str = ""


def assign_row_id(row: RevisionRow) -> RevisionRow:
    """The row under its own digest."""
    held = {one.name: getattr(row, one.name) for one in fields(row) if one.name not in _UNNAMED}
    return replace(row, row_id=digest(held))


def write_row(row: RevisionRow) -> dict[str, Any]:
    """The row as JSON holds it, for a job's file."""
    return {one.name: getattr(row, one.name) for one in fields(row)}


def read_row(held: Mapping[str, Any]) -> RevisionRow:
    """The row that `write_row` wrote. Raises ValueError naming a field that is not there or not
    known."""
    try:
        return RevisionRow(**{**held, **{name: tuple(held[name]) for name in _LISTS}})
    except (TypeError, KeyError) as error:
        raise ValueError(f"no row of the sidecar's data ({error}); make the data again") from error
