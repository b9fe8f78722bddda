"""Full: a world of as many servers as are wanted, and its second day."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from zlib import crc32

from demo.world.catalogue import check_day
from demo.world.data import load_records
from demo.world.facts import Server
from demo.world.listing_page import RecordList
from demo.world.record import Record, revise_record
from demo.world.synthetic import make_record

SERVERS = 1482  # as many as one marketplace listed in 2025
_SECOND_DAY = "2026-11-21"


@dataclass(frozen=True)
class Shares:
    """Which part of the first day's servers the second day adds, changes and takes down."""

    new: float = 0.01
    changed: float = 0.01
    gone: float = 0.01

    def __post_init__(self) -> None:
        check_shares(self)


def check_shares(shares: object) -> None:
    """Raises ValueError for a field that is no share."""
    for name, value in vars(shares).items():
        if not 0 <= value <= 1:
            raise ValueError(f"share {name}={value}: expected 0 to 1")


@dataclass(frozen=True)
class FullWorld:
    """The first `count` of `records` on day one, the same on every marketplace; the rest is what
    day two adds."""

    day: int
    count: int
    records: Sequence[Record] = field(repr=False)
    shares: Shares = field(default_factory=Shares)
    scale: str = "full"
    page: int | None = None
    servers: tuple[Server, ...] = ()  # none of the demo's own

    def list_records(self, marketplace: str) -> RecordList:
        """Records of one marketplace, in its own words; made when it is first asked for."""
        if marketplace not in self._lists:
            self._lists[marketplace] = self._make_list(marketplace)
        return self._lists[marketplace]

    def is_gone(self, index: int) -> bool:
        return index < self.count and _is_chosen(index, self.shares.gone, 0)

    def is_changed(self, index: int) -> bool:
        chosen = index < self.count and _is_chosen(index, self.shares.changed, 5_000)
        return chosen and not self.is_gone(index)

    @cached_property
    def _lists(self) -> dict[str, RecordList]:
        return {}

    def _make_list(self, marketplace: str) -> RecordList:
        records = [reword_record(one, marketplace) for one in self.records]
        if self.day == 1:
            return RecordList(records[: self.count])
        here, older, gone = [], {}, []
        for index, record in enumerate(records):
            when = _make_second_day(index)
            if self.is_gone(index):
                gone.append(replace(record, deleted=True, revised_at=when))
            elif self.is_changed(index):
                older[record.slug] = (record,)
                here.append(revise_record(record, when))
            else:
                here.append(record if index < self.count else replace(record, revised_at=when))
        return RecordList(here, older, gone)


def make_full_world(
    day: int = 1,
    servers: int | None = None,
    data: Path | None = None,
    shares: Shares | None = None,
) -> FullWorld:
    """A world of `servers` invented servers, or of the first `servers` records under `data`.
    Raises ValueError for a number below 1 and a folder without the data."""
    check_day(day)
    if servers is not None and servers < 1:
        raise ValueError(f"{servers} servers: expected at least 1")
    shares = shares or Shares()
    known = load_records(data) if data else None
    count = servers or SERVERS
    if known is not None:
        # The second day adds records, so the first holds some back.
        count = min(servers or len(known), int(len(known) / (1 + shares.new)))
    whole = count + round(count * shares.new)
    records = known[:whole] if known is not None else [make_record(n) for n in range(whole)]
    return FullWorld(day, count, records, shares)


def reword_record(record: Record, marketplace: str) -> Record:
    """The record as a marketplace words it: some spell its repository or its name otherwise. The
    registry is the reference."""
    if marketplace == "registry":
        return record
    dice = crc32(f"{marketplace}:{record.slug}".encode())
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


def _is_chosen(index: int, share: float, phase: int) -> bool:
    """Whether `index` is among an evenly spread share of all numbers, whatever their count."""
    parts = round(share * 10_000)
    return ((index + 1) * parts + phase) // 10_000 > (index * parts + phase) // 10_000


def _make_second_day(index: int) -> str:
    seconds = crc32(b"%d" % index) % 86_400
    return f"{_SECOND_DAY}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
