"""Full: a world of any size, of which nothing is in memory but numbers, and its second day."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol
from zlib import crc32

from demo.world.bundle import Bundle, pack
from demo.world.catalogue import check_day
from demo.world.data import Data
from demo.world.facts import Server
from demo.world.listing_page import RecordList
from demo.world.record import Record, revise_record
from demo.world.synthetic import Synthetic

SERVERS = 1482  # as many as one marketplace listed in 2025
_SECOND_DAY = "2026-11-21"


class Universe(Protocol):
    """Records by number, of which a day lists some. `size` is None where there is no end."""

    @property
    def size(self) -> int | None: ...
    def record(self, index: int) -> Record: ...
    def index(self, slug: str) -> int | None: ...
    def find_revised_at(self, index: int) -> str: ...


@dataclass(frozen=True)
class Shares:
    """Which part of the first day's servers the second day adds, changes and takes down."""

    new: float = 0.01
    changed: float = 0.01
    gone: float = 0.01

    def __post_init__(self) -> None:
        for name in ("new", "changed", "gone"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"share {name}={getattr(self, name)}: expected 0 to 1")


@dataclass(frozen=True)
class FullWorld:
    """`count` servers on day one, the same on every marketplace."""

    day: int
    count: int
    universe: Universe
    shares: Shares = field(default_factory=Shares)
    files_url: str = ""
    scale: str = "full"
    page: int | None = None
    servers: tuple[Server, ...] = ()  # none of the demo's own

    def list_records(self, marketplace: str) -> RecordList:
        return FullRecordList(self, marketplace)

    def find_bundle(self, server: Server) -> Bundle:
        return pack(server.identifier, server.find_version(self.day))

    @cached_property
    def added(self) -> int:
        """How many servers the second day adds."""
        return round(self.count * self.shares.new)

    @cached_property
    def here(self) -> "array[int]":
        """Numbers of the records listed today, in order."""
        if self.day == 1:
            return array("I", range(self.count))
        return array("I", (n for n in range(self.count + self.added) if not self.is_gone(n)))

    def is_gone(self, index: int) -> bool:
        return index < self.count and _is_chosen(index, self.shares.gone, 0)

    def is_changed(self, index: int) -> bool:
        chosen = index < self.count and _is_chosen(index, self.shares.changed, 5_000)
        return chosen and not self.is_gone(index)

    def count_differences(self) -> dict[str, int]:
        """How many servers day two adds, changes and takes down."""
        numbers = range(self.count)
        return {
            "new": self.added,
            "changed": sum(map(self.is_changed, numbers)),
            "gone": sum(map(self.is_gone, numbers)),
        }


class FullRecordList(RecordList):
    """What one marketplace lists of a full world: everything, in its own words."""

    def __init__(self, world: FullWorld, marketplace: str) -> None:
        self._world, self._marketplace = world, marketplace

    def __len__(self) -> int:
        return len(self._world.here)

    def get_record(self, position: int) -> Record:
        return self._make_today(self._world.here[position])

    def find_position(self, slug: str) -> int | None:
        index = self._world.universe.index(slug)
        if index is None:
            return None
        here = self._world.here
        place = bisect_left(here, index)
        return place if place < len(here) and here[place] == index else None

    def find_revised_at(self, position: int) -> str:
        index, world = self._world.here[position], self._world
        if world.day == 2 and (index >= world.count or world.is_changed(index)):
            return _make_second_day(index)
        return world.universe.find_revised_at(index)

    def list_older(self, record: Record) -> tuple[Record, ...]:
        if record.revised_at < _SECOND_DAY:
            return ()
        index = self._world.universe.index(record.slug)
        if index is None or not self._world.is_changed(index):
            return ()
        return (self._retell_record(index),)

    def list_gone(self) -> Iterable[Record]:
        if self._world.day == 1:
            return
        for index in filter(self._world.is_gone, range(self._world.count)):
            yield replace(
                self._retell_record(index), deleted=True, revised_at=_make_second_day(index)
            )

    def _make_today(self, index: int) -> Record:
        record, world = self._retell_record(index), self._world
        if world.day == 2 and index >= world.count:
            return replace(record, revised_at=_make_second_day(index))
        if world.day == 2 and world.is_changed(index):
            return revise_record(record, _make_second_day(index))
        return record

    def _retell_record(self, index: int) -> Record:
        """The record as this marketplace words it: some spell its repository or its name
        otherwise. The registry is the reference."""
        record = self._world.universe.record(index)
        if self._marketplace == "registry":
            return record
        dice = crc32(f"{self._marketplace}:{record.slug}".encode())
        changes = {}
        if record.repository and dice % 5 == 0:
            changes["repository"] = (
                f"{record.repository}.git",
                record.repository.replace("https://", "http://"),
                f"{record.repository}/",
            )[dice // 5 % 3]
        if dice % 7 == 0:
            changes["title"] = f"{record.title} MCP Server"
        if dice % 11 == 0:
            changes["description"] = record.description[:60]
        return replace(record, **changes) if changes else record


def make_full_world(
    day: int = 1,
    servers: int | None = None,
    data: Path | None = None,
    shares: Shares | None = None,
    files_url: str = "",
) -> FullWorld:
    """A world of `servers` invented servers, or of the first `servers` records under `data`.
    Raises ValueError for a number below 1 and a folder without the data."""
    check_day(day)
    if servers is not None and servers < 1:
        raise ValueError(f"{servers} servers: expected at least 1")
    shares = shares or Shares()
    universe: Universe = Data(data) if data else Synthetic()
    count = servers or SERVERS
    if universe.size is not None:
        # The second day adds records, so the first holds some back.
        count = min(servers or universe.size, int(universe.size / (1 + shares.new)))
    return FullWorld(day, count, universe, shares, files_url)


def _is_chosen(index: int, share: float, phase: int) -> bool:
    """Whether `index` is among an evenly spread share of all numbers, whatever their count."""
    parts = round(share * 10_000)
    return ((index + 1) * parts + phase) // 10_000 > (index * parts + phase) // 10_000


def _make_second_day(index: int) -> str:
    seconds = crc32(b"%d" % index) % 86_400
    return f"{_SECOND_DAY}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
