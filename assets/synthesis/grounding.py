"""Is a value in the text? Strings, numbers, dates, switches and choices, in several spellings.

What belongs here: reading numbers, dates and words out of a request, and grading one value.
What does not: which values must be grounded and what follows from it (`verify.py`).

Grades: `stated` (it is there, in some spelling), `likely` (something there may mean it: a landmark
for a coordinate, a word for a code), `absent` (nothing there speaks of it).
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.synthesis.lexicon import words_in, words_of
from assets.synthesis.spoken import ALIASES, MONTHS, RELATIVE_TIME, numbers_in

Json = Any
STATED, LIKELY, ABSENT = "stated", "likely", "absent"
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_STOP = set(
    words_in(
        "the a an of and or to in on at for with by from is are be was it its this that as "
        "my your our me i we you they he she please can could would not no do does did"
    )
)


@dataclass(frozen=True)
class Text:
    """A request, read once for all its values."""

    raw: str

    @cached_property
    def folded(self) -> str:
        return fold(self.raw)

    @cached_property
    def squeezed(self) -> str:
        return squeeze(self.raw)

    @cached_property
    def tokens(self) -> set[str]:
        """Words and their stems, words of identifiers and the folded aliases of known names."""
        words = set(re.findall(r"\w+", self.folded))
        words |= {alias for word in words for alias in ALIASES.get(word, ())}
        spoken = f" {self.folded} "
        words |= {a for name, as_ in ALIASES.items() if " " in name and name in spoken for a in as_}
        return words | {stem(word) for word in words}

    @cached_property
    def numbers(self) -> set[float]:
        return numbers_in(self.folded)


def fold(text: str) -> str:
    """Case, width, accents, quotes and dashes out of the way."""
    flat = unicodedata.normalize("NFKD", text).casefold()
    flat = "".join(char for char in flat if not unicodedata.combining(char))
    return flat.translate(_FLAT).replace("ı", "i").replace("ł", "l").replace("ß", "ss")


_FLAT = str.maketrans("‘’“”–—−‐‑´`", "''\"\"-----''")


def squeeze(text: str) -> str:
    """Letters and digits only: `/home/x y` and `home x-y` are the same."""
    return "".join(char for char in fold(text) if char.isalnum())


def stem(word: str) -> str:
    """A blunt stem: inflection at the end of longer words goes."""
    for ending in ("ing", "ies", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def leaves(value: Json, schema: Mapping[str, Json], path: str = "") -> Iterator[tuple[str, Json]]:
    """(path, scalar) of every scalar inside a value, in order."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from leaves(member, {}, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from leaves(member, {}, f"{path}[{index}]")
    else:
        yield path, value


def grade(value: Json, schema: Mapping[str, Json], name: str, text: Text) -> str:
    """How well the text holds one scalar of the parameter `name`: stated, likely or absent."""
    if value is None or value == "" or ("default" in schema and schema["default"] == value):
        return STATED
    if "const" in schema:
        return STATED
    if isinstance(value, bool):
        return _switch(name, text)
    if isinstance(value, (int, float)):
        return _number(float(value), name, text)
    return _string(str(value), schema, name, text)


def _switch(name: str, text: Text) -> str:
    told = {stem(word) for word in words_of(name) if len(word) > 2} - {"includ", "enabl", "use"}
    return STATED if not told or told & text.tokens or _POLARITY.search(text.folded) else LIKELY


_POLARITY = re.compile(
    r"\b(?:with|without|no|not|don't|on|off|only|also|all|every|any|too|even|just|never|skip|leave"
    r"|include|exclude|but|yes|first|last|ohne|mit|nur|sans|avec|sin|con|solo|sem|com)\b|n't|[^\x00-\x7f]"
)


def _number(value: float, name: str, text: Text) -> str:
    numbers = text.numbers
    if any(abs(n - value) <= 1e-9 * max(1.0, abs(value)) for n in numbers):
        return STATED
    if value < 0 and -value in numbers and _NEGATIVE.search(text.folded):
        return STATED
    if re.search(r"%|percent|per cent|prozent|yuzde|por ?cento", text.folded) and value * 100 in {
        round(n, 6) for n in numbers
    }:
        return STATED
    if _UNIT_OF_TIME.search(text.folded) and any(value == n * f for n in numbers for f in _SPANS):
        return STATED
    if -value in numbers and value > 0:
        return ABSENT  # the sign was said, and it is the other one
    if value in (0, 1) or any(abs(value) == abs(n) * f for n in numbers for f in _FACTORS):
        return LIKELY
    if set(words_of(name)) & {"lat", "lon", "lng", "latitude", "longitude", "long"}:
        return ABSENT if any(n != int(n) for n in numbers) else LIKELY
    return ABSENT


_NEGATIVE = re.compile(r"south|west|minus|below|negative|\d\s*°?\s*[swo]\b|sud|oeste|ouest")
_UNIT_OF_TIME = re.compile(r"second|minute|hour|\bmin\b|\bsec|sekunde|stunde|segundo|hora|heure")
_SPANS = (60, 1000, 3600, 60_000, 3_600_000)
_FACTORS = (
    10, 100, 1000, 1e6, 1e9, 60, 3600, 60000, 24, 7, 30, 365, 12, 1024, 1024**2, 0.1, 0.01, 0.001,
)  # fmt: skip


def _string(value: str, schema: Mapping[str, Json], name: str, text: Text) -> str:
    squeezed = squeeze(value)
    words = re.findall(r"\w+", fold(value))
    if not squeezed:
        # "*", "+", "…": symbols are stated literally or they are not.
        return STATED if value.strip() in text.raw else LIKELY
    literal = squeezed in text.squeezed if len(squeezed) > 3 else squeezed in text.tokens
    if literal or (fold(value).strip() in text.folded and len(squeezed) > 2):
        return STATED
    if (found := _DATE.search(value)) is not None:
        return _date(tuple(int(part) for part in found.groups()), text)
    if re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        return STATED if float(value) in text.numbers else ABSENT
    if re.fullmatch(r"[\d.]+(?:\s*[,;|x:]\s*[\d.]+)+", value):
        parts = re.findall(r"\d+(?:\.\d+)?", value)
        return STATED if all(float(part) in text.numbers for part in parts) else ABSENT
    if text.tokens & set(ALIASES.get(squeezed, ())) or squeezed in text.tokens:
        return STATED
    if (stepped := _STEP.fullmatch(squeezed)) is not None:
        return _step(stepped, text)
    if (month := re.fullmatch(r"(\d{4})-(\d{2})", value)) is not None:
        return _date((int(month.group(1)), int(month.group(2)), 1), text)
    share = _share([word for word in words if word not in _STOP] or words, text)
    choices = schema.get("enum")
    if choices:
        if share >= 0.5:
            return STATED
        others = {squeeze(str(choice)) for choice in choices if choice != value}
        # Another choice in the text is the one that was asked for.
        return ABSENT if {o for o in others if len(o) > 2} & text.tokens else LIKELY
    if _PROGRAM.search(value) and share >= 0.25:
        return STATED  # composed from what the text says; its keywords are the language's
    if (scoped := _SCOPED.fullmatch(value)) is not None:
        # Asia/Tokyo, nodes-base.slack: people say the last part.
        share = max(share, _share(re.findall(r"\w+", fold(scoped.group(1))), text))
    if not squeezed.isascii() and not re.search(r"[a-z]", squeezed):
        share = max(share, sum(char in text.squeezed for char in squeezed) / len(squeezed))
    if share >= 0.7:
        return STATED
    return LIKELY if share > 0 or (RELATIVE_TIME.search(text.folded) and _timely(name)) else ABSENT


_SCOPED = re.compile(r"[\w-]+(?:/[\w+-]+)*[/.]([A-Za-z][\w+-]{2,})")
_PROGRAM = re.compile(r"\n|;\s|\w\(|\bselect\b.*\bfrom\b|==|=>|\\", re.IGNORECASE)
_STEP = re.compile(r"(?=.*[a-z])([a-z]{0,2})(\d{1,4})([a-z]{0,2})")
_STEPS = {
    "s": "sec",
    "m": "min",
    "h": "hour",
    "d": "da[iy]",
    "w": "week",
    "mo": "month",
    "y": "year",
}


def _step(stepped: re.Match[str], text: Text) -> str:
    """`15m`, `h6`, `d1`: a number and a unit; one of something is a word like "daily"."""
    unit, count = stepped.group(1) or stepped.group(3), float(stepped.group(2))
    spoken = unit in _STEPS and re.search(_STEPS[unit], text.folded)
    if spoken and (count in text.numbers or count == 1):
        return STATED
    return LIKELY if spoken or count in text.numbers else ABSENT


def _timely(name: str) -> bool:
    return bool(set(words_of(name)) & {"date", "time", "day", "start", "end", "since", "until"})


def _share(words: list[str], text: Text) -> float:
    """The share of words that the text holds: as they are, by stem, or spelled into another."""
    if not words:
        return 0.0
    held = 0
    for word in words:
        number = float(word) if word.isdigit() and len(word) < 15 else None
        held += (
            word in text.tokens
            or stem(word) in text.tokens
            or (len(word) > 4 and word in text.squeezed)
            or (number is not None and number in text.numbers)
            or bool(text.tokens & set(ALIASES.get(word, ())))
        )
    return held / len(words)


def _date(day: tuple[int, ...], text: Text) -> str:
    year, month, date = day
    named = any(
        re.search(rf"\b{name}", text.folded) for name, number in MONTHS.items() if number == month
    )
    if (date in text.numbers or date == 1) and (named or month in text.numbers):
        return STATED
    span = re.search(r"through|until|\bto\b|between|bis|jusqu|hasta", text.folded)
    if date == 1 and year in text.numbers and span:
        return STATED  # a month inside "January through March"
    if named or date in text.numbers or year in text.numbers:
        return LIKELY
    return LIKELY if RELATIVE_TIME.search(text.folded) else ABSENT
