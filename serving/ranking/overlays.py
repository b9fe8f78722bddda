"""Which tools may be answered at all: allowed, not excluded, not blocked."""

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from assets.contracts.tool_id import compile_globs
from assets.outcomes.reliability.table import OVERLAY, OVERLAY_FORMAT
from serving.index.folder import load_index, read_served_version
from serving.index.model import Index, IndexBroken, IndexMissing
from warehouse.storage.files import write_atomically
from warehouse.storage.takedowns import read_takedowns

_KEPT = 64  # masks of allow-lists that are remembered; one is a byte a tool


@dataclass(frozen=True)
class Blocked:
    """Contract digests and tool ids that are never answered."""

    digests: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()


def read_blocked(place: Path) -> Blocked:
    """`<place>/router/BLOCKED.json`, nothing where there is none. Raises IndexBroken: what cannot
    be read must not count as nothing blocked."""
    path = place / "router" / "BLOCKED.json"
    try:
        held = json.loads(path.read_bytes())
        digests, tools = (
            frozenset(map(str, held.get(name) or ())) for name in ("digests", "tools")
        )
    except FileNotFoundError:
        return Blocked()
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise IndexBroken(
            f"{path}: {type(error).__name__}: {error}; expected"
            ' {"digests": [...], "tools": [...]}: write it again, or delete it if nothing is held'
        ) from error
    return Blocked(digests, tools)


class Eligible:
    """Masks of one index under one set of blocked tools. Thread-safe; allow-lists are cached."""

    def __init__(self, index: Index, blocked: Blocked) -> None:
        self._index, self._lock = index, Lock()
        self._masks: OrderedDict[tuple[str, ...], np.ndarray] = OrderedDict()
        self._open = np.array(
            [
                tool.contract_digest not in blocked.digests and tool.tool_id not in blocked.tools
                for tool in index.tools
            ],
            bool,
        )
        self.all_open = bool(self._open.all())

    def may_answer(self, place: int) -> bool:
        """Whether the tool at a place is not blocked."""
        return bool(self._open[place])

    def mask(self, allowed: tuple[str, ...] | None, exclude: Iterable[str]) -> np.ndarray | None:
        """True where a tool may be answered; None when all may."""
        out = [at for name in exclude if (at := self._index.place_of(name)) is not None]
        if allowed is None and not out:
            return None if self.all_open else self._open
        mask = (self._open if allowed is None else self._match_allowed(tuple(allowed))).copy()
        mask[out] = False
        return mask

    def _match_allowed(self, globs: tuple[str, ...]) -> np.ndarray:
        with self._lock:
            if globs in self._masks:
                self._masks.move_to_end(globs)
                return self._masks[globs]
        mask = self._open & self._match_globs(globs)
        with self._lock:
            self._masks[globs] = mask
            while len(self._masks) > _KEPT:
                self._masks.popitem(last=False)
        return mask

    def _match_globs(self, globs: tuple[str, ...]) -> np.ndarray:
        matches = compile_globs(globs)
        return np.array([matches(tool.server_id, tool.tool) for tool in self._index.tools], bool)


_FIX = "`toolmill run` writes it again; or delete it: nothing is known then"


class OverlayBroken(ValueError):
    """An overlay that cannot be read, with the fix. Searches go on without it."""


@dataclass(frozen=True)
class Reliability:
    """The expected share of a tool's calls that work, its 95% interval, and the calls it rests on,
    decayed and weighed: 0 where it follows from other tools alone."""

    mean: float
    low: float
    high: float
    n: float


@dataclass(frozen=True)
class Overlay:
    """float32 [tools] each, by the places of an index; not a number where nothing is known of a
    tool under its contract there. overall: the mean of all tools."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    overall: float

    def tell(self, place: int) -> Reliability | None:
        """What is known of the tool at a place."""
        if math.isnan(self.mean[place]):
            return None
        parts = (self.mean, self.low, self.high)
        return Reliability(
            *(round(float(part[place]), 4) for part in parts), n=round(float(self.n[place]), 2)
        )

    @cached_property
    def lift(self) -> np.ndarray:
        """By how much each tool works more often than tools do, float32 [tools]; 0 where nothing is
        known."""
        return np.nan_to_num(self.mean - np.float32(self.overall), nan=0.0).astype(np.float32)


def read_overlay(place: Path, index: Index) -> Overlay | None:
    """`<place>/router/RELIABILITY.json` by the places of an index, None where there is none. Raises
    OverlayBroken."""
    path = place / "router" / OVERLAY
    try:
        held = json.loads(path.read_bytes())
        if held["format"] != OVERLAY_FORMAT:
            raise ValueError(f"format {held['format']!r:.40}, expected {OVERLAY_FORMAT}")
        return _place_rows(index, held["rows"], held["overall"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise OverlayBroken(f"{path}: {why}; {_FIX}") from None


def _place_rows(index: Index, rows: Any, overall: Any) -> Overlay:
    found = np.full((4, len(index.tools)), np.nan, np.float32)
    for tool_id, digest, mean, low, high, n in rows:
        numbers = [float(value) for value in (mean, low, high, n)]
        shares = numbers[:3]
        if not (min(shares) >= 0 and max(shares) <= 1 and 0 <= numbers[3] < math.inf):
            raise ValueError(f"{str(tool_id)[:120]!r}: {numbers}, expected shares of 1 and a count")
        place = index.place_of(tool_id)
        if place is not None and index.tools[place].contract_digest == digest:
            found[:, place] = numbers
    share = float(overall)
    if not 0 <= share <= 1:
        raise ValueError(f"overall is {share}, expected a share of 1")
    return Overlay(*found, overall=share)


def write_blocklist(
    place: Path, digests: Iterable[str], tools: Iterable[str] = (), version: str | None = None
) -> int:
    """Makes these the held contracts of a place, with the tools of `version` (by default of the
    served one) that are taken down; a running router sees it at its next query. Returns how many
    there are. Raises TakedownError, IndexBroken."""
    taken = find_taken_tools(place, version)
    held = {"digests": sorted(set(digests)), "tools": sorted({*tools, *taken})}
    path = place / "router" / "BLOCKED.json"
    if not any(held.values()) and not path.exists():
        return 0
    write_atomically(path, json.dumps(held).encode())
    return len(held["digests"]) + len(held["tools"])


def find_taken_tools(place: Path, version: str | None = None) -> set[str]:
    """Ids of the tools of an index version that are taken down; of the served one by default, of
    none where none is served."""
    taken = read_takedowns(place)
    if not taken:
        return set()
    try:
        index = load_index(place, version or read_served_version(place))
    except IndexMissing:
        return set()

    def iterate_texts(at: int) -> Iterator[str]:
        server = index.servers[index.tools[at].server]
        yield json.dumps(index.contract(at), ensure_ascii=False)
        yield from (server.name, server.description, server.summary)

    return {
        tool.tool_id
        for at, tool in enumerate(index.tools)
        if taken.is_reached(tool.server_id, tool.tool, tool.contract_digest, iterate_texts(at))
    }
