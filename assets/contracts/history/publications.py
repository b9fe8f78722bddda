"""Publications of snapshots that were not folded yet: by their place, for clocks are put back."""

from datetime import UTC, datetime

from assets.contracts.history.history import CHANGES, add_changes
from assets.contracts.history.snapshot import SNAPSHOTS
from warehouse.json_types import Record
from warehouse.storage.tables import Head, Tables

READ_RULE = "snapshots_read"  # the rule whose verdict keeps up to which publications were read
_UNTIL = " until "


def split_publications(
    tables: Tables, partition: str, last: str | None, since: float
) -> tuple[list[Head], list[Head]]:
    """(read, unread) publications of a marketplace's snapshots, in their order. last: the moment of
    the last one that was read; where it is none of theirs, those after `since` (epoch seconds) are
    unread."""
    heads = tables.history(SNAPSHOTS.name, partition)
    places = [place for place, head in enumerate(heads) if format_moment(head.at) == last]
    cut = places[-1] + 1 if places else sum(head.at <= since for head in heads)
    return heads[:cut], heads[cut:]


def fold_changes(tables: Tables) -> tuple[list[Record], str]:
    """(rows of CHANGES with what the unread publications changed, which ones are read now)."""
    head = tables.head(CHANGES.name)
    marks, published = _read_marks(head), head.at if head else 0.0
    last = dict(marks or {})
    states: dict[str, list[Record]] = {}
    due: list[tuple[float, str, Head]] = []
    for name in tables.partitions(SNAPSHOTS.name):
        since = published if marks is None or name in marks else 0.0
        read, unread = split_publications(tables, name, last.get(name), since)
        states[name] = _read_rows(tables, name, read[-1]) if read else []
        turn = 0.0  # a publication never goes before the one that it replaced
        for one in unread:
            turn = max(turn, one.at)
            due.append((turn, name, one))
        if heads := read + unread:
            last[name] = format_moment(heads[-1].at)
    rows = tables.read(CHANGES).to_dicts()
    for _, name, one in sorted(due, key=lambda one: one[:2]):
        before = [row for part in states.values() for row in part]
        states[name] = _read_rows(tables, name, one)
        rows = add_changes(rows, before, [row for part in states.values() for row in part], one.at)
    return rows, "; ".join(f"{name}{_UNTIL}{moment}" for name, moment in sorted(last.items()))


def format_moment(at: float) -> str:
    """The UTC time of epoch seconds, by which a publication is known again."""
    return datetime.fromtimestamp(at, UTC).isoformat()


def _read_rows(tables: Tables, partition: str, head: Head) -> list[Record]:
    return tables.read_publication(SNAPSHOTS, partition, head).to_dicts()


def _read_marks(head: Head | None) -> dict[str, str] | None:
    """Marketplace -> the moment of the last publication that the published changes know, of each
    that they know; None where they are of before the rule. Not when they were published: a
    marketplace may have been meanwhile."""
    audit = head.audit if head else []
    kept = next((row["observed"] for row in audit if row.get("rule") == READ_RULE), None)
    if kept is None:
        return None
    pairs = (part.partition(_UNTIL) for part in kept.split("; "))
    return {name: moment for name, sign, moment in pairs if sign}
