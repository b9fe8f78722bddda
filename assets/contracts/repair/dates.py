"""Dates and times as people write them, in the form that a schema asks for."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from assets.contracts.repair.names import split_identifier
from assets.contracts.schema.reading import iterate_branches
from warehouse.json_types import Schema

_LONGEST = 60  # characters of a date
_DIGIT = re.compile(r"\d")
_CLOCK = re.compile(r"\d\s*:\s*\d|\d\s*[ap]\.?m\b", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_EPOCH = re.compile(r"\b(?:unix|epoch)\b", re.IGNORECASE)
_UTC = re.compile(r"\b(?:UTC|GMT)\s*(?=[+-]\s*\d)", re.IGNORECASE)  # dateutil turns its sign round
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_ZONED = re.compile(  # as it would any other name's
    rf"(?<![a-z])(?!{_MONTH}\b)[a-z]{{3,}}\s*[+-]\s*\d{{1,2}}(?::?\d\d)?\s*$", re.IGNORECASE
)
_MILLIS = re.compile(r"\bms\b|millisecond", re.IGNORECASE)


def propose_dates(value: str, schema: Any, root: Schema) -> Iterator[str]:
    """A written date in the format of the schema: `date`, `date-time` or `time`, or a `pattern`
    that a date fits. Nothing where a part is left open or the order of day and month is."""
    if len(value) > _LONGEST or not _DIGIT.search(value):
        return
    formats = {branch.get("format") for branch in iterate_branches(schema, root)}
    patterns = any("pattern" in branch for branch in iterate_branches(schema, root))
    if "time" in formats:
        if (clock := _parse_clock(value)) is not None:
            yield clock
        return
    moment = parse_moment(value) if formats & {"date", "date-time"} or patterns else None
    if moment is None:
        return
    if "date-time" not in formats:
        yield moment.date().isoformat()
    elif _CLOCK.search(value) or re.search(r"\dT\d", value):
        zone = "Z" if moment.tzinfo is None or moment.utcoffset() == UTC.utcoffset(None) else ""
        yield moment.replace(tzinfo=None).isoformat() + zone if zone else moment.isoformat()


def propose_epoch(value: str, name: str, schema: Any, root: Schema) -> Iterator[int]:
    """Unix time of a written date and time, where the parameter says that it is one."""
    description = " ".join(
        str(branch.get("description") or "")[:2000] for branch in iterate_branches(schema, root)
    )
    description = f"{description} {' '.join(split_identifier(name))}"
    if not _EPOCH.search(description) or len(value) > _LONGEST:
        return
    moment = parse_moment(value)
    if moment is not None:
        seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        yield seconds * 1000 if _MILLIS.search(description) else seconds


def parse_moment(text: str) -> datetime | None:
    """The day, and time, that a text means whatever the reader's country; None where a part is
    missing or either order of day and month makes a date."""
    if not _YEAR.search(text):
        return None
    readings = []
    # A year in front is followed by the month in every country.
    orders = (False,) if _YEAR.match(text.strip()) else (False, True)
    for default in (datetime(2001, 1, 1), datetime(2004, 12, 28)):
        for first in orders:
            found = _read_moment(text, default, first)
            if found is None:
                return None
            readings.append(found)
    days = {reading.date() for reading in readings}
    return (
        readings[0]
        if len(days) == 1 and len({reading.timetz() for reading in readings}) == 1
        else None
    )


def _parse_clock(text: str) -> str | None:
    """`3pm`, `15:30`: a time of day, with its seconds."""
    if not _CLOCK.search(text) or _YEAR.search(text):
        return None
    found = _read_moment(text, datetime(2001, 1, 1), False)
    return found.timetz().isoformat() if found else None


def _read_moment(text: str, default: datetime, day_first: bool) -> datetime | None:
    from dateutil import parser

    text = _UTC.sub("", text)
    if _ZONED.search(text):
        return None
    try:
        return parser.parse(text, default=default, dayfirst=day_first, tzinfos=_find_zone)
    except (ValueError, OverflowError, TypeError, ArithmeticError):
        return None


def _find_zone(name: str | None, offset: int | None) -> tzinfo | None:
    """Raises ValueError for a zone of letters but UTC: `IST` is three of them."""
    if offset is not None:
        return timezone(timedelta(seconds=offset)) if offset else UTC
    if name is None:
        return None
    raise ValueError(f"which zone {name!r} is is not known")
