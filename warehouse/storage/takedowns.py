"""Take-downs: servers and tools that must vanish because their owner asks.

<home>/takedowns/record.jsonl   one tombstone a line, only ever added to: who, when, why, what

Every table is read and written through `keep_rows`, as of any moment, so that nothing made of
tables holds what was taken down.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from warehouse.storage.files import DecisionFile

SERVER, TOOL = "server", "tool"
TAKEN, LIFTED = "taken down", "lifted"
_PARTS = ("servers", "listings", "tools", "shown")


class TakedownError(ValueError):
    """A tombstone that cannot be made or read; the message says what is wrong."""


@dataclass(frozen=True)
class Tombstone:
    """One decision. name: the server's or tool's id; at: UTC, ISO 8601. reach: JSON object:
    servers, listings, tools ([server, tool]) whose rows go, and shown (contracts that no other
    server lists), whose calls and prompts go."""

    name: str
    kind: str
    verdict: str
    by: str
    at: str
    why: str
    reach: str


def _find_problem(tombstone: Tombstone) -> str:
    if tombstone.kind not in (SERVER, TOOL):
        return f"kind is {tombstone.kind[:40]!r}, expected {SERVER} or {TOOL}"
    if tombstone.verdict not in (TAKEN, LIFTED):
        return f"verdict is {tombstone.verdict[:40]!r}, expected {TAKEN!r} or {LIFTED!r}"
    try:
        Takedowns.of([tombstone])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"reach cannot be read ({type(error).__name__}: {error})"
    return ""


@dataclass(frozen=True)
class Takedowns:
    """All that is taken down now; false where that is nothing."""

    servers: frozenset[str] = frozenset()
    listings: frozenset[str] = frozenset()
    tools: frozenset[tuple[str, str]] = frozenset()
    shown: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tombstones: Iterable[Tombstone]) -> "Takedowns":
        """What these reach. Raises ValueError, KeyError, TypeError for a reach that is none."""
        names: dict[str, set[Any]] = {name: set() for name in _PARTS}
        for tombstone in tombstones:
            reach = json.loads(tombstone.reach)
            for name in _PARTS:
                names[name] |= {_read_entry(name, entry) for entry in reach.get(name, ())}
        return cls(**{name: frozenset(of) for name, of in names.items()})

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in _PARTS)

    def is_reached(self, server_id: str, tool: str) -> bool:
        """Whether a tool is taken down, by its server or by its own name."""
        return server_id in self.servers or (server_id, tool) in self.tools


def record_tombstone(home: Path, tombstone: Tombstone) -> None:
    _FILE.record(home, tombstone)


def read_tombstones(home: Path) -> list[Tombstone]:
    """All of them, oldest first. Raises TakedownError on a line that is none: a record that cannot
    be read must not count as nothing taken down."""
    return _FILE.read(home)


def find_active(home: Path) -> dict[str, Tombstone]:
    last = {tombstone.name: tombstone for tombstone in read_tombstones(home)}
    return {name: one for name, one in last.items() if one.verdict == TAKEN}


def read_takedowns(home: Path) -> Takedowns:
    """What is taken down now; read anew when the record was written to. Raises TakedownError."""
    try:
        stat = (home / _PLACE).stat()
    except FileNotFoundError:
        return _NOTHING
    mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    cached = _KNOWN.get(home)
    if cached is None or cached[0] != mark:
        cached = _KNOWN[home] = (mark, Takedowns.of(find_active(home).values()))
    return cached[1]


def _read_entry(part: str, entry: Any) -> Any:
    if part != "tools":
        return _require_text(entry)
    server, tool = entry
    return _require_text(server), _require_text(tool)


def _require_text(entry: Any) -> str:
    if not isinstance(entry, str) or not entry:
        raise ValueError(f"{entry!r:.60} is no name")
    return entry


_PLACE = Path("takedowns") / "record.jsonl"
_NOTHING = Takedowns()
_KNOWN: dict[Path, tuple[tuple[int, int, int], Takedowns]] = {}
_FILE = DecisionFile(
    _PLACE,
    Tombstone,
    _find_problem,
    TakedownError,
    "look at it: until it can be read nothing is, since nobody knows what was taken down; a line"
    " that is no JSON goes with `toolmill doctor --fix`, then take down again what it said",
)


_SERVERS = ("server_id", "other_server_id")
# JSON that names contracts by their digests: what a row calls, and what its prompt showed.
_SHOWING = ("calls", "contracts", "offered")
_NEGATIVES = "negatives"


def keep_rows(takedowns: Takedowns, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that nothing reaches, in their order; their lists of hard negatives (`negatives`, a
    JSON list of digests) lose what is taken down."""
    if not takedowns or not len(frame):
        return frame
    return _drop_negatives(frame.filter(~find_taken(takedowns, frame)), takedowns.shown)


def find_taken(takedowns: Takedowns, frame: pl.DataFrame) -> pl.Series:
    """True where a row is reached, Boolean [rows]."""
    tests = [pl.lit(False), *_match_names(takedowns, frame), *_match_shown(takedowns, frame)]
    hit = frame.select(pl.any_horizontal(tests).fill_null(False).alias("hit"))["hit"]
    return hit if len(hit) == len(frame) else pl.repeat(False, len(frame), eager=True)


def _match_names(takedowns: Takedowns, frame: pl.DataFrame) -> list[pl.Expr]:
    columns, tests = set(frame.columns), []
    servers = sorted(takedowns.servers)
    tests += [pl.col(name).is_in(servers) for name in _SERVERS if name in columns and servers]
    if "server_ids" in columns and servers:
        tests.append(pl.col("server_ids").list.eval(pl.element().is_in(servers)).list.any())
    if "servers" in columns and servers:
        quoted = [json.dumps(server, ensure_ascii=False) for server in servers]
        tests.append(pl.col("servers").str.contains_any(quoted))
    if "listing_id" in columns and takedowns.listings:
        tests.append(pl.col("listing_id").is_in(sorted(takedowns.listings)))
    for server, tool in (("server_id", "tool"), ("other_server_id", "other_tool")):
        if takedowns.tools and {server, tool} <= columns:
            tests += [
                (pl.col(server) == s) & (pl.col(tool) == t) for s, t in sorted(takedowns.tools)
            ]
    return tests


def _match_shown(takedowns: Takedowns, frame: pl.DataFrame) -> list[pl.Expr]:
    """Rows whose calls or prompts name a contract that only what is taken down lists."""
    names = [name for name in _SHOWING if frame.schema.get(name) == pl.String]
    shown = sorted(takedowns.shown)
    return [pl.col(name).str.contains_any(shown) for name in names if shown]


def _drop_negatives(frame: pl.DataFrame, digests: Collection[str]) -> pl.DataFrame:
    """The frame, its lists of hard negatives without these."""
    if _NEGATIVES not in frame.columns or not digests:
        return frame

    def drop(text: str) -> str:
        negatives = json.loads(text)
        remaining = [negative for negative in negatives if negative not in digests]
        return (
            text if len(remaining) == len(negatives) else json.dumps(remaining, ensure_ascii=False)
        )

    return frame.with_columns(pl.col(_NEGATIVES).map_elements(drop, return_dtype=pl.String))
