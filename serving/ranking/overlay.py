"""The overlay of an index: how often each of its tools works, as outcomes have shown."""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assets.outcomes.reliability.overlay import OVERLAY, OVERLAY_FORMAT
from serving.index.model import Index

_FIX = "`toolmill reliability refresh` writes it again; or delete it: nothing is known then"


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
