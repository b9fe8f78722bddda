"""What a fault does to the records of a list before a site shows them."""

from collections.abc import Mapping
from dataclasses import replace

from demo.world.listing_page import RecordList
from demo.world.record import Record

MARK = "\ue000"  # becomes bytes that are not UTF-8 once the answer is encoded
_LONG = "All work and no play. "
OF_RECORDS = frozenset(
    ["empty", "duplicates", "huge_description", "bad_utf8", "hidden_text", "layout", "skew"]
)


def apply_record_faults(records: RecordList, faults: Mapping[str, str]) -> RecordList:
    """The records as these faults show them."""
    if not OF_RECORDS & faults.keys():
        return records
    shown = [] if "empty" in faults else [_change_record(record, faults) for record in records]
    if shown and "huge_description" in faults:
        size = int(float(faults["huge_description"]) * 1e6 / 22)
        shown[0] = _change_record(replace(records[0], description=_LONG * size), faults)
    if "duplicates" in faults:
        shown += shown[: -(-len(shown) // 10)]
    older = {
        slug: tuple(_change_record(version, faults) for version in versions)
        for slug, versions in records.older.items()
    }
    return RecordList(shown, older, [_change_record(one, faults) for one in records.gone])


def _change_record(record: Record, faults: Mapping[str, str]) -> Record:
    title, description, revised_at = record.title, record.description, record.revised_at
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
