"""Contract history as the ladder reads it: which tool and which parameter has another name now.

{"format": 1, "moves": [{"server_id", "tool", "was", "renamed": {old: new}, "from_digest",
"to_digest", "date"}]}, oldest first: `tool` is the name now, `was` the name before (the same where
only parameters moved; several moves lead from name to name). What it says is a proposal: the
contract at hand decides.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_text, require_object

FORMAT = 1
HISTORY_FILE = "history.json"
_MOST = 64 * 1024 * 1024  # bytes: a move takes some 300
_LONGEST_CHAIN = 16


@dataclass(frozen=True)
class ContractMove:
    """One change of one tool of one server. renamed: parameters, old name -> new name. date: UTC
    date of the run that saw it."""

    server_id: str
    tool: str
    was: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    from_digest: str = ""
    to_digest: str = ""
    date: str = ""


@dataclass(frozen=True)
class ContractHistory:
    """Moves, oldest first."""

    moves: tuple[ContractMove, ...] = ()

    @cached_property
    def _by_old_name(self) -> dict[str, list[ContractMove]]:
        moves: dict[str, list[ContractMove]] = {}
        for move in self.moves:
            if move.was != move.tool:
                moves.setdefault(move.was, []).append(move)
        return moves

    @cached_property
    def _by_name(self) -> dict[str, list[ContractMove]]:
        moves: dict[str, list[ContractMove]] = {}
        for move in self.moves:
            moves.setdefault(move.tool, []).append(move)
        return moves

    def find_successors(self, name: str) -> list[tuple[str, str]]:
        """(server, name now) of what was called so once, over all renames since."""
        successors: dict[tuple[str, str], None] = {}
        for move in self._by_old_name.get(name, ()):
            server, now = move.server_id, move.tool
            for _ in range(_LONGEST_CHAIN):
                later = [m for m in self._by_old_name.get(now, ()) if m.server_id == server]
                if not later or later[-1].tool == name:
                    break
                now = later[-1].tool
            successors[server, now] = None
        return list(successors)

    def find_renamed(self, tool: str, server: str | None = None) -> dict[str, str]:
        """Parameters of a tool by the names they had, also under a former name of the tool. Where
        two servers moved one name to different ones, and the server is not known, neither
        counts."""
        targets_by_name: dict[str, set[str]] = {}
        names, todo = {tool}, [tool]
        while todo and len(names) < _LONGEST_CHAIN:
            for move in self._by_name.get(todo.pop(), ()):
                if server in (None, move.server_id) and move.was not in names:
                    names.add(move.was)
                    todo.append(move.was)
        for move in self.moves:
            if move.tool not in names or server not in (None, move.server_id):
                continue
            for old, new in move.renamed.items():
                for targets in targets_by_name.values():
                    if old in targets:  # renamed again
                        targets.discard(old)
                        targets.add(new)
                targets_by_name.setdefault(old, set()).add(new)
        return {old: next(iter(new)) for old, new in targets_by_name.items() if len(new) == 1}


def write_history(moves: Iterable[ContractMove]) -> bytes:
    """The file's bytes, by date; the same for the same moves in any order."""
    order = partial(json.dumps, sort_keys=True)
    rows = sorted((asdict(move) for move in moves), key=lambda row: (row["date"], order(row)))
    return json.dumps({"format": FORMAT, "moves": rows}, ensure_ascii=False, indent=0).encode()


def read_history(path: Path) -> ContractHistory:
    """The history of a file. Raises UnusableInput, naming the first move that is none."""
    return parse_history(parse_json(read_text(path, _MOST), path), path)


def parse_history(value: Any, where: object) -> ContractHistory:
    """The history that a JSON value holds. Raises UnusableInput."""
    history = require_object(value, where)
    if history.get("format") != FORMAT or not isinstance(history.get("moves"), list):
        raise UnusableInput(
            f"{where}: expected {{'format': {FORMAT}, 'moves': [...]}}, found format"
            f" {history.get('format')!r:.40}; take {HISTORY_FILE} of a release"
        )
    return ContractHistory(
        tuple(_read_move(row, f"{where}, move {at}") for at, row in enumerate(history["moves"]))
    )


def _read_move(row: Any, where: str) -> ContractMove:
    texts = ("server_id", "tool", "was")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in texts):
        raise UnusableInput(f"{where}: expected an object with texts {', '.join(texts)}")
    renamed = row.get("renamed") or {}
    pairs = renamed.items() if isinstance(renamed, dict) else [(None, None)]
    if not all(isinstance(old, str) and isinstance(new, str) for old, new in pairs):
        raise UnusableInput(f"{where}: renamed is {renamed!r:.60}, expected {{old: new}}")
    details = {key: str(row.get(key) or "") for key in ("from_digest", "to_digest", "date")}
    return ContractMove(row["server_id"], row["tool"], row["was"], renamed, **details)
