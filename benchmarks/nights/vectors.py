"""LanceDB looks at the machine's clock: there a version is as old as the month has run since it."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import time_machine

from demo.world.month import START
from warehouse.storage.lance import TEXTS, LanceStore

_DAY = 86_400.0


def note_start(root: Path, day: int) -> None:
    """Keeps when a day began by the machine's clock."""
    path = root / "starts.json"
    starts = read_starts(root) | {day: read_clock()}
    path.write_text(json.dumps(starts), encoding="utf-8")


def read_clock() -> float:
    """The machine's clock (epoch seconds), also in the month's time."""
    hatch = time_machine.escape_hatch
    return hatch.time.time() if hatch.is_travelling() else time.time()


def read_starts(root: Path) -> dict[int, float]:
    """Day -> when it began by the machine's clock (epoch seconds)."""
    path = root / "starts.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {int(day): at for day, at in found.items()}


def convert_age(age: timedelta, now: float, starts: Mapping[int, float], clock: float) -> timedelta:
    """How long ago the day began, by the machine's clock, that was so long ago in the month. now:
    of the month, clock: of the machine (epoch seconds)."""
    day = int((now - age.total_seconds() - START.timestamp()) // _DAY) + 1
    since = starts.get(day, min(starts.values(), default=clock) - 1)
    return timedelta(seconds=max(clock - since, 1e-3))


@contextmanager
def age_vectors(root: Path) -> Iterator[None]:
    """While this is open, versions of vector tables are as old as they are in the month."""
    real = LanceStore.compact

    def compact(
        store: LanceStore,
        table: str = TEXTS,
        older_than: timedelta = timedelta(days=7),
        **of: Any,
    ) -> None:
        age = convert_age(older_than, time.time(), read_starts(root), read_clock())
        real(store, table, age, **of)

    with patch.object(LanceStore, "compact", compact):
        yield
