"""Other forms of one value that its schema may have meant: read from text, cut to a choice, …"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from assets.contracts.repair.json_text import WrittenFloat, read_structure
from assets.contracts.repair.names import find_nearest, find_same_name, fold_name, split_identifier
from assets.contracts.repair.problems import ABSENT, find_choices, find_types
from assets.contracts.schema_shapes import is_number, iterate_branches, name_json_type
from warehouse.json_types import Schema
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
        if _CLOCK.search(value) and not _YEAR.search(value):  # `3pm`, `15:30`
            moment = _read_moment(value, datetime(2001, 1, 1), False)
            if moment:
                yield moment.timetz().isoformat()
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
_JSON_TEXT = re.compile(r"json|serializ|serialis|stringif", re.IGNORECASE)
_COMMA_TEXT = re.compile(r"comma|\bcsv\b", re.IGNORECASE)
_NOTHING = ("", "null", "none", "nil", "undefined", "n/a")
_VALUE_WRAPPERS = {  # names, folded, of what only holds a value
    *("value", "values", "item", "items", "element", "elements", "text", "content", "data", "list"),
    *("array", "string", "name", "id"),
}
_ABOUT_VALUE = {"type", "description", "title", "format"}
_QUOTED_COMMA = re.compile(r"(?<![\s,])[\"'],[ ]?[\"'](?![\s,])")
_BRACKETS = ("[]", "{}", "()")
_POINT = re.compile(r"^(?:[-*•]|\d{1,3}[.)])\s+")
_ELEMENTS = compile_pattern(r"<(\w{1,40})>([^<>]*)</(\w{1,40})>")
_CUT = 3  # letters that a choice cut short lacks at least: `USD` is no `USDT`
_WORDS = 4  # of one entry of a list that was given as text with commas
_LONGEST_CHOICE = 300  # characters of a text that may be meant for a choice
_LONGEST_VALUES = 100_000  # characters of a text that is read as JSON


def propose_values(
    value: Any, schema: Any, root: Schema, name: str = ""
) -> Iterator[tuple[Any, bool]]:
    """(another form of the value, whether it may have flaws of its own). name: of the parameter."""
    types = find_types(schema, root)
    choices = find_choices(schema, root)
    if choices:
        yield from ((choice, False) for choice in _propose_choices(value, choices))
    if isinstance(value, str):
        word = value.strip()
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
            parsed = read_structure(word)
            if (isinstance(parsed, list) and "array" in types) or (
                isinstance(parsed, dict) and "object" in types
            ):
                yield parsed, True
            elif parsed == [] and "object" in types:
                yield {}, True
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
        yield from ((inner, True) for inner in _unwrap_value(value, types, name))
        if "string" in types:
            yield from ((text, False) for text in _write_text(value, name, schema, root))
    if "array" in types and isinstance(value, str):
        yield from ((items, True) for items in _split_list(value))
    elif "array" in types and not isinstance(value, list) and value is not None:
        yield [value], True


def _unwrap_value(value: Any, types: set[str], name: str) -> Iterator[Any]:
    """What stands in a wrapper around a value: a list of one, `{"value": ...}`, an object whose
    names are places; and PHP's empty list for an empty object."""
    if isinstance(value, list):
        if value == [] and "object" in types:
            yield {}
        alone = value[0] if len(value) == 1 else ABSENT
        if alone is not ABSENT and ("array" not in types or name_json_type(alone) in types):
            yield alone
        named = read_named_values(value) if "object" in types else None
        if named is not None:
            yield named
    elif "object" not in types:
        about = [key for key in value if key not in _ABOUT_VALUE]
        wrappers = {*_VALUE_WRAPPERS, fold_name(name), fold_name(name).removesuffix("s")}
        if len(about) == 1 and fold_name(str(about[0])) in wrappers:
            yield value[about[0]]
        places = [str(key) for key in value]
        for first in (0, 1):
            counted = [str(place) for place in range(first, first + len(places))]
            if "array" in types and places and places == counted:
                yield list(value.values())


def read_named_values(items: list[Any]) -> dict[str, Any] | None:
    """The object that a list of `{"name": ..., "value": ...}` says; None where it is no such list,
    or has a name twice."""
    named: dict[str, Any] = {}
    for item in items:
        key = next(
            (key for key in ("name", "key") if isinstance(item, Mapping) and key in item), ""
        )
        if not key or "value" not in item or not item.keys() <= {key, "value", "type"}:
            return None
        named[str(item[key])] = item["value"]
    return named if items and len(named) == len(items) else None


def _write_text(value: Any, name: str, schema: Any, root: Schema) -> Iterator[str]:
    """A list or object as text, where name or description say in which form; else none: structure
    that was sent is not to end up as text."""
    about = [name, *(str(branch.get("description")) for branch in iterate_branches(schema, root))]
    if any(_JSON_TEXT.search(text[:2000]) for text in about):
        yield json.dumps(value, ensure_ascii=False)
    elif (
        isinstance(value, list)
        and any(_COMMA_TEXT.search(text[:2000]) for text in about)
        and all(isinstance(item, str) and "," not in item for item in value)
    ):
        yield ",".join(value)


def _split_list(text: str) -> Iterator[list[str]]:
    """The items of a text that stands for a list: quoted ones, elements of XML, points of a list,
    lines or a few words between commas, else the text alone. Nothing of structure that could not be
    read: its signs would become part of the items."""
    bare = text.strip()
    if says_nothing(text) or len(bare) > _LONGEST_VALUES:
        return
    if bare[0] in "\"'" and bare[-1] == bare[0] and len(bare) > 1:
        items = read_structure(f"[{bare}]")
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            yield items
        return
    elements = _ELEMENTS.findall(bare)
    if elements and not _ELEMENTS.sub("", bare).strip():
        if len({tag for opened, _, closed in elements for tag in (opened, closed)}) == 1:
            yield [inner.strip() for _, inner, _ in elements]
        return
    enclosed = bare[0] in "[{(" and (bare[-1] in "]})" or not _is_balanced(bare))
    if enclosed or _QUOTED_COMMA.search(bare):
        return
    lines = [line.strip() for line in bare.splitlines() if line.strip()]
    if len(lines) > 1 and all(map(_POINT.match, lines)):
        yield [_POINT.sub("", line) for line in lines]
    # Of 84 golden lists of texts, none of one held a comma in it and one of several did, a
    # list of sentences: a few words between commas are a list.
    for pieces in (bare.split(","), lines):
        items = [piece.strip() for piece in pieces]
        short = all(0 < len(item.split()) <= _WORDS and _is_balanced(item) for item in items)
        if len(items) > 1 and short:
            yield items
    yield [text]


def _is_balanced(text: str) -> bool:
    """Whether every bracket and double quote of a text has its other half."""
    return text.count('"') % 2 == 0 and all(text.count(a) == text.count(b) for a, b in _BRACKETS)


def says_nothing(value: Any) -> bool:
    """Whether a value says that there is none: null, an empty text, a word for it."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING)


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


def _format_number(value: float) -> str:
    if isinstance(value, WrittenFloat):
        return value.written
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else json.dumps(value)
