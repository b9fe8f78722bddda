"""What a fault does to the records of a list before a site shows them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from demo.world.listing_page import RecordList
from demo.world.record import Record

MARK = "\ue000"  # becomes bytes that are not UTF-8 once the answer is encoded
OF_RECORDS = frozenset(
    ["empty", "duplicates", "huge_description", "bad_utf8", "hidden_text", "layout", "skew"]
)


def apply_record_faults(records: RecordList, faults: Mapping[str, str]) -> RecordList:
    """The records as these faults show them."""
    return FaultyRecords(records, faults) if OF_RECORDS & faults.keys() else records


class FaultyRecords(RecordList):
    """Records that are changed as they are taken from the list."""

    def __init__(self, records: RecordList, faults: Mapping[str, str]) -> None:
        self._records, self._faults = records, faults

    def __len__(self) -> int:
        if "empty" in self._faults:
            return 0
        held = len(self._records)
        return held + -(-held // 10) if "duplicates" in self._faults else held

    def get_record(self, position: int) -> Record:
        held = len(self._records)
        return self._apply_faults(self._records[position % held], first=position % held == 0)

    def find_position(self, slug: str) -> int | None:
        return None if "empty" in self._faults else self._records.find_position(slug)

    def list_older(self, record: Record) -> tuple[Record, ...]:
        return tuple(self._apply_faults(one) for one in self._records.list_older(record))

    def list_gone(self) -> Iterable[Record]:
        return (self._apply_faults(one) for one in self._records.list_gone())

    def _apply_faults(self, record: Record, first: bool = False) -> Record:
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
