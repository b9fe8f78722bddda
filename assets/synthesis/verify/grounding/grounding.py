# ruff: noqa: E501  (tables of patterns read better unbroken)
"""Is a value in the text? Grades each scalar of a call against a request read once.

Grades: `stated` (it is there, in some spelling), `likely` (something there may mean it: a landmark
for a coordinate, a word for a code), `absent` (nothing there speaks of it).
"""

import math
import re
from collections.abc import Iterator, Mapping

from assets.synthesis.verify.grounding.dates import ABSENT, LIKELY, STATED, parse_epoch_day
from assets.synthesis.verify.grounding.folding import fold_text, squeeze_text, stem_word
from assets.synthesis.verify.grounding.request import LONGEST, Text
from assets.synthesis.verify.grounding.strings import grade_string, grade_switch
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Json, Schema

__all__ = [
    "ABSENT",
    "LIKELY",
    "STATED",
    "Text",
    "fold_text",
    "grade_value",
    "squeeze_text",
    "stem_word",
    "walk_leaves",
]

MOST_LEAVES = 2_000  # of one argument; what is longer repeats itself


def walk_leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """(path, scalar) of the scalars inside a value, in order; of very many the first thousands."""
    stack, count = [(path, value)], 0
    while stack and count < MOST_LEAVES:
        path, value = stack.pop()
        if len(path) > 2000:
            continue
        if isinstance(value, Mapping):
            members = list(value.items())[:MOST_LEAVES]
            named = [(f"{path}.{name}" if path else str(name), member) for name, member in members]
            stack += reversed(named)
        elif isinstance(value, list):
            stack += reversed([(f"{path}[{n}]", m) for n, m in enumerate(value[:MOST_LEAVES])])
        else:
            count += 1
            yield path, value


def grade_value(value: Json, schema: Schema, name: str, text: Text, *, listed: bool = False) -> str:
    """How well the text holds one scalar of the parameter `name`: stated, likely or absent.
    `listed`: whether it is one of a list, which a text may name by its ends."""
    if value is None or value == "" or ("default" in schema and schema["default"] == value):
        return STATED
    if "const" in schema:
        return STATED
    if isinstance(value, bool):
        return grade_switch(name, text)
    if isinstance(value, (int, float)):
        return _grade_number(value, name, text, listed)
    return grade_string(str(value)[:LONGEST], schema, name, text)


_PLACES = {"lat", "lon", "lng", "latitude", "longitude", "long"}
_INDEXES = {"index", "idx", "position", "offset", "row", "column", "col", "page", "skip", "tab"}


def _grade_number(given: float, name: str, text: Text, listed: bool) -> str:
    try:
        value = float(given)
    except OverflowError:
        return ABSENT
    if not math.isfinite(value):
        return LIKELY
    numbers, words = text.numbers, set(split_identifier(name))
    if value in numbers:
        return ABSENT if words & _PLACES and _has_other_sign(value, text.folded) else STATED
    if value < 0 and -value in numbers and _NEGATIVE.search(text.folded):
        return STATED
    if _matches_scaled(value, text) or _matches_span(value, text):
        return STATED
    if listed and any(low <= value <= high for low, high in text.ranges):
        return STATED  # grades 9 to 12
    if (day := parse_epoch_day(value)) is not None:
        return text.grade_day(day)
    if -value in numbers and value > 0:
        return ABSENT  # the sign was said, and it is the other one
    if value in (0, 1) or any(_round(abs(value) / f) in numbers.read for f in _FACTORS):
        return LIKELY
    if words & _INDEXES and (value + 1 in numbers or value - 1 in numbers):
        return LIKELY  # counted from the other end of 0 and 1
    if words & _PLACES:
        return ABSENT if any(n != math.floor(n) for n in numbers.read) else LIKELY
    return ABSENT


_NEGATIVE = re.compile(r"south|west|minus|below|negative|\d\s*°?\s*[swo]\b|sud|oeste|ouest")
_FACTORS = (
    10, 100, 1000, 1e6, 1e9, 60, 3600, 60000, 24, 7, 30, 365, 12, 1024, 1024**2, 0.1, 0.01, 0.001,
)  # fmt: skip


_UNITS_OF_TIME = (60, 3600, 86_400, 604_800, 2_592_000)


def _matches_span(value: float, text: Text) -> bool:
    """Whether a length of time that is said comes to this many of some unit."""
    if value != round(value, 1) or value <= 0:
        return False
    wanted = {value, value / 1000, *(value * unit for unit in _UNITS_OF_TIME)}
    return any(
        _round(one / unit) in text.numbers.read for one in wanted for unit in text.time_units
    )


# What is said -> how many of the plain unit it is.
_SCALED = (
    (
        re.compile(
            r"\d\s*k\b|\bk(?:m|g|w|hz|v|b|j|pa|ib|n|cal)s?\b|\d\s*k(?:m|g|w|hz|v|b|j|pa|ib)\b"
        ),
        1e3,
    ),
    (re.compile(r"\bkilo|kilomet|公里|千米"), 1e3),
    (re.compile(r"\bm(?:hz|w|b|ib|pa|v)\b|\d\s*m(?:hz|w|b|ib|pa|v)\b|\bmega|\bmegs?\b"), 1e6),
    (re.compile(r"\bg(?:hz|w|b|ib|pa)\b|\d\s*g(?:hz|w|b|ib|pa)\b|\bgiga|\bgigs?\b"), 1e9),
    (re.compile(r"\bt(?:b|w|ib)\b|\d\s*t(?:b|w|ib|hz)\b|\btera"), 1e12),
    (re.compile(r"\d\s*cm\b|\bcm\b|centimet|\bcents?\b|\bpence\b"), 0.01),
    (re.compile(r"\d\s*m(?:m|s|g|l|a|v)\b|\bmilli"), 1e-3),
    (re.compile(r"\d\s*[uµμ](?:m|s|g|l|a|f)\b|\bmicro"), 1e-6),
    (re.compile(r"\d\s*n(?:m|s|f)\b|\bnano"), 1e-9),
    (re.compile(r"[$€£]|dollar|euro|pound|\bchf\b|\beur\b|\busd\b"), 100.0),  # in cents
    (re.compile(r"\d\s*ki?b\b|kilobyte"), 1024.0),
    (re.compile(r"\d\s*mi?b\b|megabyte|\bmegs?\b"), 1024.0**2),
    (re.compile(r"\d\s*gi?b\b|gigabyte|\bgigs?\b"), 1024.0**3),
    (re.compile(r"\d\s*gi?b\b|gigabyte|\bgigs?\b"), 1024.0),  # counted in megabytes
    (re.compile(r"%|percent|per cent|prozent|yuzde|por ?cento|процент|بالمئة|パーセント"), 0.01),
    (re.compile(r"out of (?:10|ten)\b|/10\b|von zehn|sur dix|sobre diez|de dez"), 0.1),
)


def _matches_scaled(value: float, text: Text) -> bool:
    """Whether a number of the text, with the unit that the text names, comes to `value`."""
    factors = (factor for unit, factor in _SCALED if unit.search(text.folded))
    return any(_round(value / factor) in text.numbers.read for factor in factors)


def _round(value: float) -> float:
    """Without the error of a division: 1.75 / 0.01 is 175."""
    return float(f"{value:.12g}")


def _has_other_sign(value: float, folded: str) -> bool:
    """Whether the text gives this coordinate the other hemisphere: 33.85 south for 33.85."""
    written = re.escape(f"{abs(value):.10f}".rstrip("0").rstrip("."))
    away = rf"(?<![\d.]){written}0*\s*(?:°|degrees?\b|deg\b)?\s*(?:(?:s|w)\b|south|west|sud\b|oeste|ouest|sur\b|guney|bati)"
    return value > 0 and re.search(away, folded) is not None
