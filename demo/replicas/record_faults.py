"""Spoil: what a fault does to the records of a list before a site shows them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from demo.world.listing_page import Shelf
from demo.world.record import Record

MARK = "\ue000"  # becomes bytes that are not UTF-8 once the answer is encoded
OF_RECORDS = frozenset(
    ["empty", "duplicates", "huge_description", "bad_utf8", "hidden_text", "layout", "skew"]
)


def spoiled(shelf: Shelf, faults: Mapping[str, str]) -> Shelf:
    """The shelf as these faults show it; the shelf itself where none of them touches records."""
    return Spoiled(shelf, faults) if OF_RECORDS & faults.keys() else shelf


class Spoiled(Shelf):
    """A shelf whose records are changed as they are taken from it."""

    def __init__(self, shelf: Shelf, faults: Mapping[str, str]) -> None:
        self._shelf, self._faults = shelf, faults

    def __len__(self) -> int:
        if "empty" in self._faults:
            return 0
        held = len(self._shelf)
        return held + -(-held // 10) if "duplicates" in self._faults else held

    def at(self, position: int) -> Record:
        held = len(self._shelf)
        return self._spoil(self._shelf[position % held], first=position % held == 0)

    def position(self, slug: str) -> int | None:
        return None if "empty" in self._faults else self._shelf.position(slug)

    def older(self, record: Record) -> tuple[Record, ...]:
        return tuple(self._spoil(one) for one in self._shelf.older(record))

    def gone(self) -> Iterable[Record]:
        return (self._spoil(one) for one in self._shelf.gone())

    def _spoil(self, record: Record, first: bool = False) -> Record:
        faults = self._faults
        title, description, revised_at = record.title, record.description, record.revised_at
        if first and "huge_description" in faults:
            description = "All work and no play. " * int(
                float(faults["huge_description"]) * 1e6 / 22
            )
        if "hidden_text" in faults:
            title = f"\u202e{title[:1]}\u200b{title[1:]}\u202c\ufeff"
            description = f"\u2066{description}\u2069\u200d"
        if "bad_utf8" in faults:
            title, description = title + MARK, MARK + description
        if "skew" in faults:
            revised_at = f"{int(revised_at[:4]) + int(float(faults['skew']))}{revised_at[4:]}"
        record = replace(record, title=title, description=description, revised_at=revised_at)
        if "layout" in faults:
            record = replace(record, package=None, remote=None, odd=None)
        return record
