"""Take-downs: what must vanish because its owner asks, or because it is a secret found late.

<home>/takedowns/record.jsonl   one tombstone a line, only ever added to: who, when, why, what

Every table is read and written through `keep_rows` (`warehouse/storage/taken_rows.py`), whatever
moment is asked for, so that all that is made of tables lacks what was taken down. A secret is never
written down: a tombstone has its fingerprint (`warehouse/storage/fingerprint.py`).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warehouse.storage.decisions import DecisionFile
from warehouse.storage.fingerprint import Fingerprint

SERVER, TOOL, SECRET = "server", "tool", "secret"
TAKEN, LIFTED = "taken down", "lifted"
_PARTS = ("servers", "listings", "tools", "contracts", "shown", "blobs")


class TakedownError(ValueError):
    """A tombstone that cannot be made or read; the message says what is wrong."""


@dataclass(frozen=True)
class Tombstone:
    """One decision. name: the server's or tool's id, or `secret-…`; at: UTC, ISO 8601.

    reach: JSON object of what the name stands for. servers, listings, tools ([server, tool]):
    their rows go. contracts (digests), blobs (SHA-256): rows that name one go. shown (digests of
    contracts that no other server lists): rows whose call or prompt names one go. fingerprint: rows
    whose text holds the secret go.
    """

    name: str
    kind: str
    verdict: str
    by: str
    at: str
    why: str
    reach: str


def _find_problem(one: Tombstone) -> str:
    if one.kind not in (SERVER, TOOL, SECRET):
        return f"kind is {one.kind[:40]!r}, expected {SERVER}, {TOOL} or {SECRET}"
    if one.verdict not in (TAKEN, LIFTED):
        return f"verdict is {one.verdict[:40]!r}, expected {TAKEN!r} or {LIFTED!r}"
    try:
        Takedowns.of([one])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"reach cannot be read ({type(error).__name__}: {error})"
    return ""


@dataclass(frozen=True)
class Takedowns:
    """All that is taken down now; false where that is nothing."""

    servers: frozenset[str] = frozenset()
    listings: frozenset[str] = frozenset()
    tools: frozenset[tuple[str, str]] = frozenset()
    contracts: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    secrets: tuple[Fingerprint, ...] = field(default=())

    @classmethod
    def of(cls, tombstones: Iterable[Tombstone]) -> "Takedowns":
        """What these reach. Raises ValueError, KeyError, TypeError for a reach that is none."""
        parts: dict[str, set[Any]] = {name: set() for name in _PARTS}
        secrets = []
        for tombstone in tombstones:
            reach = json.loads(tombstone.reach)
            for name in _PARTS:
                parts[name] |= {_read_entry(name, entry) for entry in reach.get(name, ())}
            if "fingerprint" in reach:
                secrets.append(Fingerprint.parse(reach["fingerprint"]))
        return cls(**{name: frozenset(of) for name, of in parts.items()}, secrets=tuple(secrets))

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in (*_PARTS, "secrets"))

    def is_reached(self, server_id: str, tool: str, digest: str, texts: Iterable[str]) -> bool:
        """Whether a tool is: by its server, its name, its contract, or a text that is shown of
        it."""
        if server_id in self.servers or (server_id, tool) in self.tools:
            return True
        return digest in self.contracts or self.is_secret_in(texts)

    def is_secret_in(self, texts: Iterable[str]) -> bool:
        """Whether a text holds a secret that was taken down."""
        listed = list(texts) if self.secrets else []
        return any(secret.find_holders(listed) for secret in self.secrets)


def record_tombstone(home: Path, tombstone: Tombstone) -> None:
    """Appends one tombstone; nothing is ever rewritten. Raises TakedownError on a bad one."""
    _FILE.record(home, tombstone)


def read_tombstones(home: Path) -> list[Tombstone]:
    """All of them, oldest first. Raises TakedownError on a line that is none: a record that cannot
    be read must not count as nothing taken down."""
    return _FILE.read(home)


def find_active(home: Path) -> dict[str, Tombstone]:
    """Name -> the tombstone that holds now."""
    last = {tombstone.name: tombstone for tombstone in read_tombstones(home)}
    return {name: one for name, one in last.items() if one.verdict == TAKEN}


def read_takedowns(home: Path) -> Takedowns:
    """What is taken down now; read anew when the record was written to. Raises TakedownError."""
    try:
        found = (home / _PLACE).stat()
    except FileNotFoundError:
        return _NOTHING
    mark = (found.st_ino, found.st_mtime_ns, found.st_size)
    known = _KNOWN.get(home)
    if known is None or known[0] != mark:
        known = _KNOWN[home] = (mark, Takedowns.of(find_active(home).values()))
    return known[1]


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
    " that is no JSON goes with `toolmill ledger repair`, then take down again what it said",
)
