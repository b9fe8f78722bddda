"""Reads dates, times of day and steps ("15m", "1day") as people say them."""

import re
from calendar import month_abbr, month_name, monthrange
from datetime import UTC, datetime
from functools import cache

from assets.synthesis.verify.numbers import TextNumbers, read_number_word
from assets.synthesis.verify.words import (
    ABSENT,
    LIKELY,
    STATED,
    fold_text,
    make_time_unit_symbols,
    read_month_names,
    read_time_unit_words,
)
from assets.vectors.lexicon import collect_words
from warehouse.patterns import compile_pattern

# ruff: noqa: E501  (tables of phrases read better unbroken)


Day = tuple[int, int, int]

# Everyday words too: a month only beside a day, a year or a word of time.
_AMBIGUOUS = collect_words("may march mar mart mars mai mei maja dec sep jun marco")
RELATIVE_TIME = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|now|next|last|this|past|coming|week|weekend|month|year"
    r"|ago|monday|tuesday|wednesday|thursday|friday|saturday|sunday|noon|midnight|morning|quarter"
    r"|heute|morgen|gestern|demain|hier|manana|ayer|amanha|ontem|bugun|yarin|dun|besok|kemarin)\b"
    rf"|今天|明天|昨天|今日|明日|昨日|上周|下周|{fold_text('오늘')}|{fold_text('내일')}|{fold_text('어제')}"
)
_SPAN = re.compile(
    r"through|until|\bto\b|between|\bbis\b|jusqu|hasta|whole|entire|all of|during|full[- ]year|\bin\b|\bof\b|\bfor\b|全年|整年"
)
_WRITTEN = re.compile(
    r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)|(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})(?!\d)"
)
_YEAR = re.compile(r"(?<![\d.,/:-])(?:19|20)\d\d(?![\d:]|[.,]\d)")


def find_written_dates(folded: str) -> set[Day]:
    """Dates in figures, in every order that makes a date (3/4/2025 is two)."""
    days: set[Day] = set()
    for match in list(_WRITTEN.finditer(folded))[:200]:
        if match.group(1):
            days.add((int(match.group(1)), int(match.group(2)), int(match.group(3))))
        else:
            first, second, year = (int(part) for part in match.groups()[3:])
            year += 2000 if year < 100 else 0
            days |= {(year, first, second), (year, second, first)}
    return {day for day in days if 1 <= day[1] <= 12 and 1 <= day[2] <= 31}


def parse_days(value: str) -> set[Day]:
    """The days that a value may mean: ISO, compact, day or month first; empty when it is no date."""
    compact = re.fullmatch(r"((?:19|20)\d\d)(\d\d)(\d\d)", value)
    if compact is not None:
        day = tuple(int(part) for part in compact.groups())
        return {day} if 1 <= day[1] <= 12 and 1 <= day[2] <= 31 else set()  # type: ignore[return-value]
    if len(value) > 40:
        return set()
    days = find_written_dates(value)
    month = re.fullmatch(r"(\d{4})-(\d{2})", value)
    return days or ({(int(month.group(1)), int(month.group(2)), 1)} if month else set())


def parse_epoch_day(number: float) -> Day | None:
    """The UTC day of a Unix time in seconds or milliseconds, for the years 2001 to 2039."""
    seconds = number / 1000 if 1e12 <= number < 2.2e12 else number
    if not 1e9 <= seconds < 2.2e9 or number != int(number):
        return None
    at = datetime.fromtimestamp(seconds, UTC)
    return at.year, at.month, at.day


def grade_date(day: Day, folded: str, numbers: TextNumbers, written: set[Day]) -> str:
    """Whether a folded text states a day, or makes it likely."""
    if day in written:
        return STATED
    year, month, date = day
    month_named = _names_month(month, folded)
    spoken = RELATIVE_TIME.search(folded) is not None
    years = {int(year_text) for year_text in _YEAR.findall(folded)}
    if years and year not in years and (year % 100) not in numbers:
        return LIKELY if spoken or month_named else ABSENT  # a year is said, and it is another one
    if written and not month_named:
        return LIKELY  # dates are written out, and this is none of them
    if date in numbers and (month_named or month in numbers):
        return STATED
    edge = date == 1 or date == monthrange(max(1, min(year, 9999)), month)[1]
    if edge and month_named and _SPAN.search(folded) and not _DAY_OF_MONTH.search(folded):
        return STATED  # "in March": from the 1st to the 31st
    if edge and not month_named and (year in numbers or years) and _SPAN.search(folded):
        months = [n for n in range(1, 13) if _names_month(n, folded)]
        if (not months and (month, date) in ((1, 1), (12, 31))) or (
            date == 1 and len(months) > 1 and months[0] < month < months[-1]
        ):
            return STATED  # a whole year, or a month inside "January through March"
    return LIKELY if month_named or date in numbers or year in numbers or spoken else ABSENT


_DAY_OF_MONTH = compile_pattern(
    r"\b\d{1,2}(?:st|nd|rd|th|\.|er)?(?:\s*(?:-|to|and)\s*\d{1,2}(?:st|nd|rd|th)?)?\s{1,3}(?:of |de )?\p{L}{3,14}\.?,? (?:19|20)\d\d\b|\b\p{L}{3,14} \d{1,2}(?:st|nd|rd|th)?,? (?:19|20)\d\d\b"
)


def join_alternatives(words: set[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True)) or "(?!)"


@cache
def _make_month_pattern(month: int) -> re.Pattern[str]:
    long, short = read_month_names(month)
    english = {month_name[month].lower(), month_abbr[month].lower()}
    clear = {*(long | english) - _AMBIGUOUS, f"{month}月", fold_text(f"{month}월")}
    vague = join_alternatives((short | long | english) - clear)
    return re.compile(
        rf"(?<![^\W_])(?:{join_alternatives(clear)})(?![^\W\d_])"
        rf"|(?:\d(?:st|nd|rd|th|\.|er)?,?\s{{0,3}}(?:of |de |di )?|\b[a-z]{{3,12}}(?:st|nd|rd|th) (?:of )?"
        rf"|\b(?:in|of|since|until|till|by|from|through|this|next|last|early|mid|late|and|to|between|im|en|em|de|di|am|bis|von) )(?:{vague})(?![^\W\d_])"
        rf"|(?<![^\W\d_])(?:{vague})\.?,? (?:the )?(?:\d|(?:twenty|thirty)?[ -]?[a-z]{{1,12}}(?:st|nd|rd|th)\b)"
    )


def _names_month(month: int, folded: str) -> bool:
    return _make_month_pattern(month).search(folded) is not None


# ruff: noqa: E501  (tables of phrases read better unbroken)


_ADVERBS = {
    "m": "minutely", "h": "hourly", "d": "daily|nightly", "w": "weekly", "mo": "monthly",
    "y": "yearly|annual",
}  # fmt: skip


@cache
def _make_unit_pattern(unit: str) -> str:
    """A unit of time as it is said: any word for it, or how often it comes."""
    return rf"(?<![a-z])(?:{join_alternatives(read_time_unit_words(unit))}|{_ADVERBS.get(unit, '(?!)')})(?![a-z])"


_STEP = re.compile(r"(?=.{0,17}[a-z])([a-z]{0,7})(\d{1,4})([a-z]{0,7})")


def grade_step(squeezed: str, folded: str, numbers: TextNumbers) -> str | None:
    """`15m`, `h6`, `1day`: a number and a unit of time; None when the value is no step."""
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
    r"\b(half past|quarter past|quarter to|quarter after) (\w{1,40})|\b(?:at|by|from|until|till|around) (\w{1,40})\b"
)


def grade_time(value: str, folded: str) -> str | None:
    """Whether a text says a time of day (`18:30`, `07:45:00`); None when the value is none."""
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)(?::\d\d)?", value)
    if clock is None:
        return None
    hour, minute = int(clock.group(1)), int(clock.group(2))
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
