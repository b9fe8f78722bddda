"""Other forms of one value that its schema may have meant: read from text, cut to a choice, …"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from assets.contracts.repair.names import find_nearest, find_same_name, fold_name, split_identifier
from assets.contracts.repair.problems import ABSENT, find_choices, find_types
from assets.contracts.schema_shapes import is_number, iterate_branches, name_json_type
from warehouse.json_types import Schema
from warehouse.llm.json_answers import read_json, strip_fence
from warehouse.patterns import compile_pattern

_QUANTITY = compile_pattern(
    r"(?P<sign>[+-]?)\s*(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d{1,12})?|\d{1,15}(?:\.\d{1,12})?)"
    r"\s*(?P<unit>[A-Za-zµ]{1,14})?\.?"
)
_TIME = {
    0.001: "ms msec msecs millis millisecond milliseconds", 1.0: "s sec secs second seconds",
    60.0: "min mins minute minutes", 3600.0: "h hr hrs hour hours", 86_400.0: "d day days",
    604_800.0: "w wk week weeks",
}  # fmt: skip
_LENGTH = {
    0.001: "mm millimeter millimeters millimetre millimetres",
    0.01: "cm centimeter centimeters centimetre centimetres",
    1.0: "m meter meters metre metres", 1000.0: "km kms kilometer kilometers kilometre kilometres",
    0.0254: "in inch inches", 0.3048: "ft foot feet", 1609.344: "mi mile miles",
}  # fmt: skip
_MASS = {
    0.001: "mg milligram milligrams", 1.0: "g gram grams", 1000.0: "kg kgs kilogram kilograms",
    453.59237: "lb lbs pound pounds",
}  # fmt: skip
_DATA = {
    1.0: "byte bytes", 1024.0: "kib kibibyte kibibytes", 1024.0**2: "mib mebibyte mebibytes",
    1024.0**3: "gib gibibyte gibibytes",
}  # fmt: skip
_BYTES_UNSURE = {  # of 1000 or of 1024
    *("b", "kb", "mb", "gb", "tb", "kilobyte", "megabyte", "gigabyte"),
    *("kilobytes", "megabytes", "gigabytes"),
}
_UNITS: dict[str, tuple[str, float]] = {
    word: (kind, factor)
    for kind, table in (("time", _TIME), ("length", _LENGTH), ("mass", _MASS), ("data", _DATA))
    for factor, words in table.items()
    for word in words.split()
}
# A parameter's description says its unit: "in seconds", "(ms)", "number of days".
_SAID = re.compile(r"\b(?:in|as|of)\s{1,9}(?:whole\s{1,9})?([A-Za-z]{1,14})\b|\(([A-Za-z]{1,14})\)")
_SHORT = {"m", "d", "h", "s", "w", "g", "in", "min", "of"}  # other words in a description


def read_quantity(text: str, name: str, schema: Any, root: Schema) -> float | None:
    """The number that a text means for a parameter, in the unit that its name or description says;
    None where the unit of either is unknown and they may differ."""
    quantity = _QUANTITY.fullmatch(text.strip()) if len(text) <= 60 else None
    if quantity is None:
        return None
    value = float(quantity["number"].replace(",", "")) * (-1 if quantity["sign"] == "-" else 1)
    unit, expected = (quantity["unit"] or "").lower(), find_unit(name, schema, root)
    if unit in ("", expected):
        return value
    if unit not in _UNITS or expected not in _UNITS or _UNITS[unit][0] != _UNITS[expected][0]:
        return None
    return float(f"{value * _UNITS[unit][1] / _UNITS[expected][1]:.12g}")


def find_unit(name: str, schema: Any, root: Schema) -> str | None:
    """The unit that a parameter counts in, by the last words of its name, else by the one unit its
    description says."""
    words = split_identifier(name)
    unit_words = [word for word in words[-2:] if word in _UNITS or word in _BYTES_UNSURE]
    naming_words = [
        word for word in unit_words if len(word) > 1 or (word == words[-1] and len(words) > 1)
    ]
    if naming_words:
        return naming_words[-1]
    units = set()
    for branch in iterate_branches(schema, root):
        text = branch.get("description") if isinstance(branch, Mapping) else None
        for unit_match in _SAID.finditer(str(text or "")[:2000].lower()):
            word, bracketed = unit_match[1], unit_match[2]
            if word in _UNITS and word not in _SHORT:
                units.add(word)
            elif bracketed in _UNITS and bracketed not in ("in", "of"):
                units.add(bracketed)
    return units.pop() if len({_UNITS[word] for word in units}) == 1 else None


_LONGEST = 60  # characters of a date
_DIGIT = re.compile(r"\d")
_CLOCK = compile_pattern(r"(?i)\d\s*:\s*\d|\d\s*[ap]\.?m\b")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_EPOCH = re.compile(r"\b(?:unix|epoch)\b", re.IGNORECASE)
_UTC = re.compile(r"(?i)\b(?:UTC|GMT)\s*(?=[+-]\s*\d)")  # dateutil turns its sign round
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_ZONED = re.compile(  # as it would any other name's
    rf"(?i)(?<![a-z])(?!{_MONTH}\b)[a-z]{{3,}}\s*[+-]\s*\d{{1,2}}(?::?\d\d)?\s*$"
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
            moment = _read_moment(text, default, first)
            if moment is None:
                return None
            readings.append(moment)
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
    moment = _read_moment(text, datetime(2001, 1, 1), False)
    return moment.timetz().isoformat() if moment else None


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


_WHOLE = re.compile(r"[+-]?\d{1,18}(?:\.0{1,18})?")
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SIGNED = re.compile(r"(?:(?<!\w)[+-])?\d+(?:\.\d+)*")
# In which no two spellings of one choice differ: `C#` is not `C++`.
_SYMBOLS = re.compile(r"[^\w\s\-./:,'\"()]")
_ENCLOSED = re.compile(  # in markup or quotes
    r"^(?:[\"'`*]{1,3}|[“”„‘’«‹\[{<]{1,2})([^\s\"'`*“”„‘’«‹\[{<].*?)"
    r"(?:[\"'`*]{1,3}|[“”‘’»›\]}>]{1,2})$"
)
_THOUSANDS = compile_pattern(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_JSON_TEXT = re.compile(r"json|array|\blist\b|serializ|serialis|stringif", re.IGNORECASE)
_CUT = 3  # letters that a choice cut short lacks at least: `USD` is no `USDT`
_WORDS = 4  # of one entry of a list that was given as text with commas
_LONGEST_CHOICE = 300  # characters of a text that may be meant for a choice
_LONGEST_VALUES = 100_000  # characters of a text that is read as JSON


class WrittenFloat(float):
    """A number with the text that it was written as: as a text, `3.10` is not `3.1`."""

    written: str

    def __new__(cls, written: str) -> "WrittenFloat":
        number = super().__new__(cls, written)
        number.written = written
        return number

    def __deepcopy__(self, _: Any) -> "WrittenFloat":
        return self


def propose_values(
    value: Any, schema: Any, root: Schema, name: str = ""
) -> Iterator[tuple[Any, bool]]:
    """(another form of the value, whether it may have flaws of its own). name: of the parameter."""
    types = find_types(schema, root)
    choices = find_choices(schema, root)
    if choices:
        yield from ((choice, False) for choice in _propose_choices(value, choices))
    if isinstance(value, str):
        yield from _parse_text_value(value, types)
        yield from ((piece, False) for piece in _propose_written(value, types, schema, root, name))
    elif isinstance(value, bool):
        if "string" in types:
            yield ("true" if value else "false"), False
        if types & {"integer", "number"} and _is_switch(schema, root):
            yield int(value), False
    elif isinstance(value, int | float):
        if "boolean" in types and value in (0, 1):
            yield bool(value), False
        if "string" in types:
            yield _format_number(value), False
    elif isinstance(value, list | dict):
        alone = value[0] if isinstance(value, list) and len(value) == 1 else ABSENT
        if alone is not ABSENT and ("array" not in types or name_json_type(alone) in types):
            yield alone, True
        several = isinstance(value, list) and len(value) != 1
        if "string" in types and (not several or _is_json_text(name, schema, root)):
            yield json.dumps(value, ensure_ascii=False), False
    if "array" in types and not isinstance(value, list) and value is not None:
        pieces = [piece.strip() for piece in value.split(",")] if isinstance(value, str) else []
        # Of 84 golden lists of texts, none of one held a comma in it and one of several did, a
        # list of sentences: a few words between commas are a list.
        if len(pieces) > 1 and all(0 < len(part.split()) <= _WORDS for part in pieces):
            yield pieces, True
        if not (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
            yield [value], True


def _parse_text_value(text: str, types: set[str]) -> Iterator[tuple[Any, bool]]:
    word = text.strip()
    if "integer" in types and _WHOLE.fullmatch(word):
        yield int(word.partition(".")[0]), False
    if "number" in types and _NUMBER.fullmatch(word) and math.isfinite(float(word)):
        whole = _WHOLE.fullmatch(word) and "." not in word
        yield (int(word) if whole else float(word)), False
    if "boolean" in types and word.lower() in (*_TRUE, *_FALSE):
        yield word.lower() in _TRUE, False
    if "null" in types and word.lower() in ("null", "none"):
        yield None, False
    if types & {"array", "object"}:
        parsed = parse_json(word)
        json_types = (list if "array" in types else (), dict if "object" in types else ())
        if isinstance(parsed, tuple(json_type for json_type in json_types if json_type)):  # type: ignore[arg-type]
            yield parsed, True


def _propose_written(
    text: str, types: set[str], schema: Any, root: Schema, name: str
) -> Iterator[Any]:
    """What a text for people says: a quantity, a date, a text without blanks around it."""
    if types & {"integer", "number"}:
        number = read_quantity(text, name, schema, root)
        if number is not None and number.is_integer():
            yield int(number)
        elif number is not None and "number" in types:
            yield number
        yield from propose_epoch(text, name, schema, root)
    if "string" in types:
        yield from propose_dates(text, schema, root)
        if len(text) <= _LONGEST_VALUES and (bare := text.strip()) != text:
            yield bare


def _propose_choices(value: Any, choices: list[Any]) -> Iterator[Any]:
    """The choice that was meant: the same but for its type, its case and separators, its spelling,
    or cut short; only where one alone is meant."""
    word = value if isinstance(value, str) else _format_number(value) if is_number(value) else None
    if isinstance(value, bool):
        word = "true" if value else "false"
    if word is None:
        return
    texts = {
        choice if isinstance(choice, str) else json.dumps(choice): choice
        for choice in reversed(choices)
    }
    if word in texts:
        yield texts[word]
    if len(word) > _LONGEST_CHOICE:
        return
    bare = _ENCLOSED.sub(r"\1", word.strip())
    bare = bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare
    signs = [_list_signs(spelling) for spelling in {word, bare}]
    names = [text for text in texts if _list_signs(text) in signs]
    if (meant := find_same_name(word, names)) is not None:
        yield texts[meant]
    if (meant := find_nearest(word, names)) is not None:
        yield texts[meant]
    short = fold_name(word)
    if len(short) >= 3:
        longer = [text for text in texts if fold_name(text).startswith(short)]
        if len(longer) == 1 and len(fold_name(longer[0])) >= len(short) + _CUT:
            yield texts[longer[0]]


def _list_signs(text: str) -> tuple[list[str], list[str]]:
    """What two spellings of one choice have in common: numbers with their signs and points, and
    symbols."""
    return _SIGNED.findall(text), _SYMBOLS.findall(text)


def _is_switch(schema: Any, root: Schema) -> bool:
    """Whether a number can be nothing but 0 and 1."""
    bounds = [(b.get("minimum"), b.get("maximum")) for b in iterate_branches(schema, root)]
    choices = find_choices(schema, root)
    return (0, 1) in bounds or (bool(choices) and all(choice in (0, 1) for choice in choices))


def parse_json(text: str) -> Any:
    """The JSON of a text, also within a code fence; None where it is none."""
    text = text.strip()
    if not text.startswith(("{", "[", "`")) or len(text) > _LONGEST_VALUES:
        return None
    fenced = strip_fence(text)
    text = text if fenced is None else fenced
    try:
        value, end = read_json(text)
    except ValueError:
        return None
    return None if text[end:].strip() else value


def _is_json_text(name: str, schema: Any, root: Schema) -> bool:
    """Whether name or description say that a text holds JSON."""
    about = [name, *(str(branch.get("description")) for branch in iterate_branches(schema, root))]
    return any(_JSON_TEXT.search(text[:2000]) for text in about)


def _format_number(value: float) -> str:
    if isinstance(value, WrittenFloat):
        return value.written
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else json.dumps(value)
