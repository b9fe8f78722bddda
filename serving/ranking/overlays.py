"""What is known since an index was built: tools that are blocked, and how often tools work.

router/BLOCKED.json       {digests: [contract digest], tools: [tool id]}
router/RELIABILITY.json   {format, overall, rows} (`assets/outcomes/reliability/table.py`)
"""

import json
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from assets.contracts.tool_id import compile_globs
from assets.outcomes.policy import OVERLAY, OVERLAY_FORMAT
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken, IndexMissing, RouterIndex
from warehouse.errors import describe_unreadable
from warehouse.storage.files import write_atomically

BLOCKED = "BLOCKED.json"
_MOST_MASKS = 64  # masks of allow-lists that are cached; one is a byte a tool
_FIX = "`toolmill run` writes it again; or delete it: nothing is known then"


@dataclass(frozen=True)
class BlockedTools:
    digests: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()


def read_blocked(place: Path) -> BlockedTools:
    """A place's blocked tools; nothing without the file. Raises IndexBroken if unreadable."""
    path = place / "router" / BLOCKED
    try:
        content = json.loads(path.read_bytes())
        names = ("digests", "tools")
        return BlockedTools(*(frozenset(map(str, content.get(name) or ())) for name in names))
    except FileNotFoundError:
        return BlockedTools()
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise IndexBroken(
            f"{path}: {describe_unreadable(error)}; expected"
            ' {"digests": [...], "tools": [...]}: write it again, or delete it if nothing is held'
        ) from error


def write_blocklist(
    place: Path, digests: Iterable[str], tools: Iterable[str] = (), version: str | None = None
) -> int:
    """Blocks these contracts and taken-down tools of `version` (default: the served one) from a
    running router's next query; returns the count. Raises TakedownError, IndexBroken."""
    taken_down = find_taken_tools(place, version)
    content = {"digests": sorted(set(digests)), "tools": sorted({*tools, *taken_down})}
    path = place / "router" / BLOCKED
    if not any(content.values()) and not path.exists():
        return 0
    write_atomically(path, json.dumps(content).encode())
    return len(content["digests"]) + len(content["tools"])


def find_taken_tools(place: Path, version: str | None = None) -> set[str]:
    """Ids of the tools of an index version, by default the served one, that are taken down."""
    from warehouse.storage.takedowns import read_takedowns  # imports Polars

    takedowns = read_takedowns(place)
    if not takedowns:
        return set()
    try:
        index = load_index(place, version or read_served_version(place))
    except IndexMissing:
        return set()
    return {tool.tool_id for tool in index.tools if takedowns.is_reached(tool.server_id, tool.tool)}


class ToolEligibility:
    """Masks of one index under one set of blocked tools. Thread-safe; allow-lists are cached."""

    def __init__(self, index: RouterIndex, blocked: BlockedTools) -> None:
        self._index, self._lock = index, Lock()
        self._masks: OrderedDict[tuple[str, ...], np.ndarray] = OrderedDict()
        self._open = np.array(
            [
                tool.contract_digest not in blocked.digests and tool.tool_id not in blocked.tools
                for tool in index.tools
            ],
            bool,
        )

    def may_answer(self, place: int) -> bool:
        return bool(self._open[place])

    def mask(self, allowed: tuple[str, ...] | None, exclude: Iterable[str]) -> np.ndarray | None:
        """True where a tool may be answered; None when all may."""
        excluded = [at for name in exclude if (at := self._index.place_of(name)) is not None]
        if allowed is None and not excluded:
            return None if self._open.all() else self._open
        mask = (self._open if allowed is None else self._match_allowed(tuple(allowed))).copy()
        mask[excluded] = False
        return mask

    def _match_allowed(self, globs: tuple[str, ...]) -> np.ndarray:
        with self._lock:
            if globs in self._masks:
                self._masks.move_to_end(globs)
                return self._masks[globs]
        matches, tools = compile_globs(globs), self._index.tools
        mask = self._open & np.array([matches(tool.server_id, tool.tool) for tool in tools], bool)
        with self._lock:
            self._masks[globs] = mask
            while len(self._masks) > _MOST_MASKS:
                self._masks.popitem(last=False)
        return mask


class OverlayBroken(ValueError):
    """An overlay that cannot be read, with the fix. Searches go on without it."""


@dataclass(frozen=True)
class ToolReliability:
    """The expected share of a tool's calls that work, its 95% interval, and the calls it rests on,
    decayed and weighted: 0 if it follows from other tools alone."""

    mean: float
    low: float
    high: float
    n: float


@dataclass(frozen=True)
class ReliabilityOverlay:
    """float32 [tools] each, by the places of an index; not a number where nothing is known of a
    tool under its contract. overall: the mean of all tools."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    overall: float

    def tell(self, place: int) -> ToolReliability | None:
        if math.isnan(self.mean[place]):
            return None
        shares = (round(float(part[place]), 4) for part in (self.mean, self.low, self.high))
        return ToolReliability(*shares, n=round(float(self.n[place]), 2))

    @cached_property
    def lift(self) -> np.ndarray:
        """Each tool's rate of success above the mean, float32 [tools]; 0 if nothing is known."""
        return np.nan_to_num(self.mean - np.float32(self.overall), nan=0.0).astype(np.float32)


def read_overlay(place: Path, index: RouterIndex) -> ReliabilityOverlay | None:
    """The overlay by the places of an index, None without the file. Raises OverlayBroken."""
    path = place / "router" / OVERLAY
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != OVERLAY_FORMAT:
            raise ValueError(f"format {content['format']!r:.40}, expected {OVERLAY_FORMAT}")
        return _place_rows(index, content["rows"], content["overall"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise OverlayBroken(f"{path}: {describe_unreadable(error)}; {_FIX}") from None


def _place_rows(index: RouterIndex, rows: Any, overall: Any) -> ReliabilityOverlay:
    columns = np.full((4, len(index.tools)), np.nan, np.float32)
    for tool_id, digest, *values in rows:
        numbers = mean, low, high, n = [float(value) for value in values]
        if not (min(mean, low, high) >= 0 and max(mean, low, high) <= 1 and 0 <= n < math.inf):
            raise ValueError(f"{str(tool_id)[:120]!r}: {numbers}, expected shares of 1 and a count")
        place = index.place_of(tool_id)
        if place is not None and index.tools[place].contract_digest == digest:
            columns[:, place] = numbers
    share = float(overall)
    if not 0 <= share <= 1:
        raise ValueError(f"overall is {share}, expected a share of 1")
    return ReliabilityOverlay(*columns, overall=share)
