"""Folds texts to one spelling; words for months, units, languages and currencies (CLDR)."""

import re
import unicodedata
from collections import defaultdict
from functools import cache, lru_cache

from babel import Locale
from babel.dates import get_month_names
from babel.numbers import get_currency_name, list_currencies
from babel.units import format_unit

from assets.vectors.lexicon import split_list

STATED, LIKELY, ABSENT = "stated", "likely", "absent"

_FLAT = str.maketrans("‘’“”–—−‐‑´`", "''\"\"-----''") | {
    ord("ı"): "i", ord("ł"): "l", ord("ß"): "ss", ord("ø"): "o", ord("đ"): "d", ord("æ"): "ae",
    **{ord(mark): None for mark in "\u200b\u200c\u200d\u2060\ufeff\u0640"},
}  # fmt: skip


def fold_text(text: str) -> str:
    """Case, width, accents, quotes and dashes out of the way."""
    if text.isascii():
        return text.lower().replace("`", "'")
    flat = unicodedata.normalize("NFKD", text).casefold()
    flat = "".join(char for char in flat if not unicodedata.combining(char))
    return flat.translate(_FLAT)


def fold_pattern(written: str) -> str:
    """A regular expression for folded text: its letters folded, its classes (`\\W`) left alone."""
    flat = unicodedata.normalize("NFKD", written)
    return "".join(char for char in flat if not unicodedata.combining(char))


def squeeze_text(text: str) -> str:
    """Letters and digits only: `/home/x y` and `home x-y` are the same."""
    return "".join(char for char in fold_text(text) if char.isalnum())


@lru_cache(maxsize=65_536)  # five small runs asked 272,000 times about 1,516 words
def stem_word(word: str) -> str:
    """A blunt stem: inflection at the end of longer words goes."""
    for ending in ("ing", "ies", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


LOCALES = split_list("en de fr es pt it nl tr pl ru sv id ar ja zh ko")
TIMES = {
    "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year",
}  # fmt: skip
_MEASURES = split_list("""
length-kilometer length-meter length-centimeter length-millimeter length-mile length-foot
length-inch length-yard mass-kilogram mass-gram mass-milligram mass-pound mass-ounce volume-liter
volume-milliliter volume-gallon volume-pint volume-quart volume-cup volume-tablespoon
volume-teaspoon temperature-celsius temperature-fahrenheit temperature-kelvin speed-knot
digital-kilobyte digital-megabyte digital-gigabyte digital-terabyte frequency-hertz
frequency-kilohertz frequency-megahertz frequency-gigahertz power-watt power-kilowatt energy-joule
energy-calorie area-acre area-hectare concentr-percent duration-second duration-minute
duration-hour""")  # fmt: skip


@cache
def read_month_names(month: int) -> tuple[set[str], set[str]]:
    """Folded names of a month: written out, and shortened."""
    long = {_read_month_name(month, "wide", style, name) for name in LOCALES for style in _STYLES}
    short = {
        _read_month_name(month, "abbreviated", style, name) for name in LOCALES for style in _STYLES
    }
    return long, {name for name in short - long if len(name) > 1}


_STYLES = ("format", "stand-alone")


def _read_month_name(month: int, width: str, style: str, locale: str) -> str:
    return fold_text(get_month_names(width, style, locale)[month]).strip(".")  # type: ignore[arg-type]


@cache
def read_time_unit_words(unit: str) -> set[str]:
    """Folded words for a unit of time (a key of `TIMES`), in every number and language."""
    unit_name, lengths = f"duration-{TIMES[unit]}", ("long", "short")
    words = {word for locale in LOCALES for word in _read_unit_words(unit_name, locale, lengths)}
    # The abbreviations of one language are words of another ("hr" is a day in Indonesian).
    english = _read_unit_words(unit_name, "en", lengths)
    return english | {word for word in words if len(word) > 2 or not word.isascii()}


def _read_unit_words(unit: str, locale: str, lengths: tuple[str, ...]) -> set[str]:
    words = set[str]()
    for length in lengths:
        for number in (1, 2, 5):
            written = format_unit(number, unit, length, locale=locale)  # type: ignore[arg-type]
            bare = re.findall(r"[^\W\d_]+", fold_text(written))
            words |= {bare[-1]} if bare else set()
    return {word for word in words if len(word) > 1 or not word.isascii()}


@cache
def make_time_unit_symbols() -> dict[str, str]:
    """What a step may be written with (`min`, `hours`, `d`) -> a key of `TIMES`."""
    symbols = {symbol: symbol for symbol in TIMES}
    for unit, name in TIMES.items():
        words = _read_unit_words(f"duration-{name}", "en", ("long", "short"))
        symbols |= {form: unit for word in words for form in (word, f"{word}s")}
    return symbols


@cache
def make_synonyms() -> dict[str, set[str]]:
    """Folded word -> the words and codes that mean the same: languages, currencies, measures."""
    synonyms: dict[str, set[str]] = defaultdict(set)
    english = Locale("en")
    for code in (code for code in map(str, english.languages) if len(code) < 4):
        for locale in LOCALES:
            name = str(Locale(locale).languages.get(code) or code)
            _join_group(synonyms, {code, fold_text(name)})
    for code in list_currencies():
        symbol = english.currency_symbols.get(code, code)
        if len(symbol) == 1:  # a currency that is meant where nothing more is said
            names = [fold_text(get_currency_name(code, n, "en")) for n in (1, 2)]
            _join_group(synonyms, {code.lower(), symbol, *(name.split()[-1] for name in names)})
    for unit in _MEASURES:
        lengths = ("long", "short", "narrow")
        words = [_read_unit_words(unit, locale, lengths) for locale in ("en", "en_GB")]
        _join_group(synonyms, set.union(*words))
    return dict(synonyms)


def _join_group(synonyms: dict[str, set[str]], group: set[str]) -> None:
    for word in group:
        synonyms[word] |= group - {word}
