# ruff: noqa: E501  (tables of phrases read better unbroken)
"""Times of day, units of time and steps ("15m", "1day") as people say them."""

import re
from functools import cache

from assets.synthesis.verify.grounding.cldr import make_time_unit_symbols, read_time_unit_words
from assets.synthesis.verify.grounding.dates import (
    ABSENT,
    LIKELY,
    RELATIVE_TIME,
    STATED,
    join_alternatives,
)
from assets.synthesis.verify.grounding.number_spelling import read_number_word
from assets.synthesis.verify.grounding.number_words import Numbers

_ADVERBS = {
    "m": "minutely", "h": "hourly", "d": "daily|nightly", "w": "weekly", "mo": "monthly",
    "y": "yearly|annual",
}  # fmt: skip


@cache
def _make_unit_pattern(unit: str) -> str:
    """A unit of time as it is said: any word for it, or how often it comes."""
    return rf"(?<![a-z])(?:{join_alternatives(read_time_unit_words(unit))}|{_ADVERBS.get(unit, '(?!)')})(?![a-z])"


_STEP = re.compile(r"(?=.*[a-z])([a-z]{0,7})(\d{1,4})([a-z]{0,7})")


def grade_step(squeezed: str, folded: str, numbers: Numbers) -> str | None:
    """`15m`, `h6`, `1day`: a number and a unit of time; None when the value is no step. One of
    something is a word like "daily"."""
    step = _STEP.fullmatch(squeezed)
    if step is None or bool(step.group(1)) == bool(step.group(3)):
        return None
    unit, count = make_time_unit_symbols().get(step.group(1) or step.group(3)), float(step.group(2))
    if unit is None:
        return LIKELY if count in numbers else ABSENT
    spoken = re.search(_make_unit_pattern(unit), folded) is not None
    others = [
        u
        for u in ("s", "m", "h", "d", "w")
        if u != unit and re.search(_make_unit_pattern(u), folded)
    ]
    if spoken and (count in numbers or (count == 1 and not _is_unit_counted(unit, folded))):
        return STATED
    for other in others if unit in _LENGTHS else ():
        same = count * _LENGTHS[unit] / _LENGTHS[other]
        if same in numbers or (same == 1 and not _is_unit_counted(other, folded)):
            return STATED  # 60m for "one hour", 7d for "the last week"
    return LIKELY if spoken or count in numbers else ABSENT


_CLOCK = re.compile(
    r"(?<![\d:.])(\d{1,2})(?:[:.h](\d\d))?\s?(?:(a|p)\.?m\b|uhr|o'clock|(?=:\d\d)|(?<=[:.h]\d\d)|h\b|in the|at night|noon)"
)
_PAST = re.compile(
    r"\b(half past|quarter past|quarter to|quarter after) (\w+)|\b(?:at|by|from|until|till|around) (\w+)\b"
)


def grade_time(value: str, folded: str) -> str | None:
    """Whether a text says a time of day (`18:30`, `07:45:00`); None when the value is none."""
    wanted = re.fullmatch(r"(\d{1,2}):(\d\d)(?::\d\d)?", value)
    if wanted is None:
        return None
    hour, minute = int(wanted.group(1)), int(wanted.group(2))
    stated = set[tuple[int, int]]()
    for match in list(_CLOCK.finditer(folded))[:50]:
        at, past = int(match.group(1)), int(match.group(2) or 0)
        stated |= {(at % 12 + 12, past)} if match.group(3) == "p" else {(at, past)}
        stated |= {(at + 12, past)} if match.group(3) is None and at < 12 else set()
    for match in list(_PAST.finditer(folded))[:50]:
        at = read_number_word(match.group(2) or match.group(3)) or 0
        past = {"half past": 30, "quarter past": 15, "quarter after": 15, "quarter to": -15}
        minutes = int(at) * 60 + past.get(match.group(1) or "", 0)
        stated |= {divmod(minutes % 1440, 60), divmod((minutes + 720) % 1440, 60)}
    stated |= {(12, 0)} if "noon" in folded else set()
    stated |= {(0, 0)} if "midnight" in folded else set()
    if (hour, minute) in stated:
        return STATED
    return LIKELY if RELATIVE_TIME.search(folded) and not stated else ABSENT


_LENGTHS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _is_unit_counted(unit: str, folded: str) -> bool:
    """Whether the text counts this unit with another number than one: "15-minute bars"."""
    if re.search(
        rf"\b(?:{_ADVERBS.get(unit, '(?!)')}|(?:an?|per|every|each) (?:{_make_unit_pattern(unit)}))",
        folded,
    ):
        return False
    before = re.findall(rf"([^\W_]{{1,14}})[\s-]{{1,2}}(?:{_make_unit_pattern(unit)})", folded)
    glued = re.search(rf"\d(?:{_make_unit_pattern(unit).replace('(?<![a-z])', '')})", folded)
    return glued is not None or any(w.isdigit() or (read_number_word(w) or 0) > 1 for w in before)


def list_time_units(folded: str) -> list[int]:
    """The units of time that the text speaks of, in seconds."""
    return [n for unit, n in _SECONDS.items() if re.search(_make_unit_pattern(unit), folded)]


_SECONDS = {**_LENGTHS, "mo": 2_592_000, "y": 31_536_000}
