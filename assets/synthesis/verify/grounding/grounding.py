"""Is a value in the text? Grades each scalar of a call against a request read once.

Grades: `stated` (it is there, in some spelling), `likely` (something there may mean it: a landmark
for a coordinate, a word for a code), `absent` (nothing there speaks of it).
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from assets.synthesis.verify.grounding.dates import ABSENT, LIKELY, STATED, day_of_epoch
from assets.synthesis.verify.grounding.folding import fold, squeeze, stem
from assets.synthesis.verify.grounding.quantities import scaled, signed_otherwise
from assets.synthesis.verify.grounding.request import LONGEST, Text
from assets.synthesis.verify.grounding.strings import grade_string, grade_switch
from assets.vectors.lexicon import words_of

__all__ = ["ABSENT", "LIKELY", "STATED", "Text", "fold", "grade", "leaves", "squeeze", "stem"]

Json = Any
MOST_LEAVES = 2_000  # of one argument; what is longer repeats itself


def leaves(value: Json, schema: Mapping[str, Json], path: str = "") -> Iterator[tuple[str, Json]]:
    """(path, scalar) of the scalars inside a value, in order; of very many the first thousands."""
    stack, told = [(path, value)], 0
    while stack and told < MOST_LEAVES:
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
            told += 1
            yield path, value


def grade(
    value: Json, schema: Mapping[str, Json], name: str, text: Text, *, listed: bool = False
) -> str:
    """How well the text holds one scalar of the parameter `name`: stated, likely or absent.
    `listed`: whether it is one of a list, which a text may name by its ends."""
    if value is None or value == "" or ("default" in schema and schema["default"] == value):
        return STATED
    if "const" in schema:
        return STATED
    if isinstance(value, bool):
        return grade_switch(name, text)
    if isinstance(value, (int, float)):
        return _number(value, name, text, listed)
    return grade_string(str(value)[:LONGEST], schema, name, text)


_PLACES = {"lat", "lon", "lng", "latitude", "longitude", "long"}
_INDEXES = {"index", "idx", "position", "offset", "row", "column", "col", "page", "skip", "tab"}


def _number(given: float, name: str, text: Text, listed: bool) -> str:
    try:
        value = float(given)
    except OverflowError:
        return ABSENT
    if not math.isfinite(value):
        return LIKELY
    numbers, words = text.numbers, set(words_of(name))
    if value in numbers or any(abs(n - value) <= 1e-12 * abs(value) for n in numbers):
        return ABSENT if words & _PLACES and signed_otherwise(value, text.folded) else STATED
    if value < 0 and -value in numbers and _NEGATIVE.search(text.folded):
        return STATED
    if scaled(value, text.folded, numbers) or _timed(value, text):
        return STATED
    if listed and any(low <= value <= high for low, high in text.ranges):
        return STATED  # grades 9 to 12
    if (day := day_of_epoch(value)) is not None:
        return text.states(day)
    if -value in numbers and value > 0:
        return ABSENT  # the sign was said, and it is the other one
    if value in (0, 1) or any(abs(value) == abs(n) * f for n in numbers for f in _FACTORS):
        return LIKELY
    if words & _INDEXES and (value + 1 in numbers or value - 1 in numbers):
        return LIKELY  # counted from the other end of 0 and 1
    if words & _PLACES:
        return ABSENT if any(n != math.floor(n) for n in numbers) else LIKELY
    return ABSENT


_NEGATIVE = re.compile(r"south|west|minus|below|negative|\d\s*°?\s*[swo]\b|sud|oeste|ouest")
_FACTORS = (
    10, 100, 1000, 1e6, 1e9, 60, 3600, 60000, 24, 7, 30, 365, 12, 1024, 1024**2, 0.1, 0.01, 0.001,
)  # fmt: skip


_UNITS_OF_TIME = (60, 3600, 86_400, 604_800, 2_592_000)


def _timed(value: float, text: Text) -> bool:
    """Whether a length of time that is said comes to this many of some unit."""
    if value != round(value, 1) or value <= 0:
        return False
    wanted = {value, value / 1000, *(value * unit for unit in _UNITS_OF_TIME)}
    return bool(wanted & text.spans)
