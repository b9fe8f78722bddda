# ruff: noqa: E501  (tables of phrases read better unbroken)
"""Dates as people say them.

`states_date` answers stated, likely or absent in the words of `grounding.py`.
"""

import re
from calendar import month_abbr, month_name, monthrange
from datetime import UTC, datetime
from functools import cache

from assets.synthesis.verify.grounding.cldr import read_month_names
from assets.synthesis.verify.grounding.folding import fold_text
from assets.synthesis.verify.grounding.number_words import Numbers
from assets.vectors.lexicon import collect_words

STATED, LIKELY, ABSENT = "stated", "likely", "absent"
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
    found: set[Day] = set()
    for match in list(_WRITTEN.finditer(folded))[:200]:
        if match.group(1):
            found.add((int(match.group(1)), int(match.group(2)), int(match.group(3))))
        else:
            one, two, year = (int(part) for part in match.groups()[3:])
            year += 2000 if year < 100 else 0
            found |= {(year, one, two), (year, two, one)}
    return {day for day in found if 1 <= day[1] <= 12 and 1 <= day[2] <= 31}


def parse_days(value: str) -> set[Day]:
    """The days that a value may mean: ISO, compact, day or month first; empty when it is no date."""
    compact = re.fullmatch(r"((?:19|20)\d\d)(\d\d)(\d\d)", value)
    if compact is not None:
        day = tuple(int(part) for part in compact.groups())
        return {day} if 1 <= day[1] <= 12 and 1 <= day[2] <= 31 else set()  # type: ignore[return-value]
    if len(value) > 40:
        return set()
    found = find_written_dates(value)
    month = re.fullmatch(r"(\d{4})-(\d{2})", value)
    return found or ({(int(month.group(1)), int(month.group(2)), 1)} if month else set())


def parse_epoch_day(number: float) -> Day | None:
    """The UTC day of a Unix time in seconds or milliseconds, for the years 2001 to 2039."""
    seconds = number / 1000 if 1e12 <= number < 2.2e12 else number
    if not 1e9 <= seconds < 2.2e9 or number != int(number):
        return None
    at = datetime.fromtimestamp(seconds, UTC)
    return at.year, at.month, at.day


def grade_date(day: Day, folded: str, numbers: Numbers, written: set[Day]) -> str:
    """Whether a folded text states a day, or makes it likely."""
    if day in written:
        return STATED
    year, month, date = day
    named = _names_month(month, folded)
    spoken = RELATIVE_TIME.search(folded) is not None
    years = {int(found) for found in _YEAR.findall(folded)}
    if years and year not in years and (year % 100) not in numbers:
        return LIKELY if spoken or named else ABSENT  # a year is said, and it is another one
    if written and not named:
        return LIKELY  # dates are written out, and this is none of them
    if date in numbers and (named or month in numbers):
        return STATED
    edge = date == 1 or date == monthrange(max(1, min(year, 9999)), month)[1]
    if edge and named and _SPAN.search(folded) and not _DAY_OF_MONTH.search(folded):
        return STATED  # "in March": from the 1st to the 31st
    if edge and not named and (year in numbers or years) and _SPAN.search(folded):
        months = [n for n in range(1, 13) if _names_month(n, folded)]
        if (not months and (month, date) in ((1, 1), (12, 31))) or (
            date == 1 and len(months) > 1 and months[0] < month < months[-1]
        ):
            return STATED  # a whole year, or a month inside "January through March"
    return LIKELY if named or date in numbers or year in numbers or spoken else ABSENT


_DAY_OF_MONTH = re.compile(
    r"\b\d{1,2}(?:st|nd|rd|th|\.|er)?(?:\s*(?:-|to|and)\s*\d{1,2}(?:st|nd|rd|th)?)?\s{1,3}(?:of |de )?[^\W\d_]{3,14}\.?,? (?:19|20)\d\d\b|\b[^\W\d_]{3,14} \d{1,2}(?:st|nd|rd|th)?,? (?:19|20)\d\d\b"
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
        rf"|(?:\d(?:st|nd|rd|th|\.|er)?,?\s*(?:of |de |di )?|\b[a-z]{{3,12}}(?:st|nd|rd|th) (?:of )?"
        rf"|\b(?:in|of|since|until|till|by|from|through|this|next|last|early|mid|late|and|to|between|im|en|em|de|di|am|bis|von) )(?:{vague})(?![^\W\d_])"
        rf"|(?<![^\W\d_])(?:{vague})\.?,? (?:the )?(?:\d|(?:twenty|thirty)?[ -]?[a-z]+(?:st|nd|rd|th)\b)"
    )


def _names_month(month: int, folded: str) -> bool:
    return _make_month_pattern(month).search(folded) is not None
