"""Grades how well a request holds each scalar of a call: stated in some spelling, likely (something
may mean it), or absent."""

import math
import re
from collections.abc import Iterator, Mapping

from assets.synthesis.verify.request_text import (
    LONGEST,
    RequestText,
    make_names,
    names_code,
    names_direction,
)
from assets.synthesis.verify.times import grade_step, grade_time, parse_days, parse_epoch_day
from assets.synthesis.verify.words import ABSENT, LIKELY, STATED, fold_text, squeeze_text, stem_word
from assets.vectors.lexicon import collect_words, find_base_form, find_family, split_identifier
from warehouse.json_types import Json, Schema
from warehouse.patterns import compile_pattern
from warehouse.storage.files import read_data

_STOP = collect_words(
    "the a an of and or to in on at for with by from is are be was it its this that as "
    "my your our me i we you they he she please can could would not no do does did"
)
# What a tool lets one do is said by the verb, and what is written for the user is written anew.
_OPERATIONS = collect_words("action command operation subtool subcommand mode method op verb type")
_COMPOSED = collect_words(
    "description summary subject title message content thought reasoning code prompt query "
    "html body note comment reason question steps sql program expression script text caption "
    "details goal problem instructions keywords topic search step label observations"
)


def grade_words(
    value: str, squeezed: str, schema: Schema, name: str, text: RequestText, other: bool
) -> str:
    words = re.findall(r"\w+", fold_text(value)) or [squeezed]
    content = [word for word in words if word not in _STOP] or words
    share = max(
        _count_share(content, text),
        _count_share(list(split_identifier(value)), text) if len(value) < 80 else 0,
    )
    if other and share < 1:
        return ABSENT  # another choice in the text is the one that was asked for
    plain = re.findall(r"\w+", fold_text(_COUNTERS.sub(" ", value)))
    if not _holds_figures(plain, text, program=bool(_PROGRAM.search(value[:4000]))):
        return LIKELY if share > 0 else ABSENT  # nearly the text's words, but other figures
    name_words = set(split_identifier(name))
    if name_words & _OPERATIONS and (
        share >= 0.5 or _is_same_family(split_identifier(value), text)
    ):
        return STATED
    if schema.get("enum"):
        return STATED if share >= 0.5 else LIKELY
    if _PROGRAM.search(value[:4000]) and share >= 0.25:
        return STATED  # composed from what the text says; its keywords are the language's
    if (scoped := _SCOPED.fullmatch(value[:400])) is not None:
        # Asia/Tokyo, nodes-base.slack: people say the last part.
        share = max(share, _count_share(re.findall(r"[^\W_]+", fold_text(scoped.group(1))), text))
    if not squeezed.isascii() and not re.search(r"[a-z]", squeezed):
        share = max(share, sum(char in text.squeezed for char in squeezed) / len(squeezed))
    if share >= (0.5 if len(content) > 2 and name_words & _COMPOSED else 0.7):
        return STATED
    return LIKELY if share > 0 else ABSENT


# "1) First …", and the 0 of 0.27, which people say as 27 percent.
_COUNTERS = re.compile(r"(?:^|(?<=\s))\d[.)](?=\s)|\b0\.(?=\d)")


def _holds_figures(words: list[str], text: RequestText, *, program: bool) -> bool:
    """Whether the text holds each word with a digit; a program's own small constants aside."""
    for word in [word for word in words if any(char.isdigit() for char in word)][:500]:
        if word in text.words or (program and word in ("0", "1", "2", "100")):
            continue
        if len(word) > 4 and word in text.squeezed:
            continue
        figures = re.findall(r"\d+", word)
        if not all(len(f) < 15 and float(f) in text.numbers for f in figures):
            return False
    return True


_SCOPED = re.compile(r"[\w-]+(?:/[\w+-]+)*[/.]([A-Za-z][\w+-]{2,})")
_PROGRAM = compile_pattern(
    r"(?i)\n|;\s|\w\(|\bselect\b.{1,400}\bfrom\b|==|=>|\\|</?\w+[\s>]|\s--?\w"
)


def _is_same_family(words: tuple[str, ...], text: RequestText) -> bool:
    """Whether the text's verbs do what the value's verb does: add, create, make."""
    verb = find_base_form(words[0]) if words else None
    return verb is not None and find_family(verb) in text.families


def _count_share(words: list[str], text: RequestText) -> float:
    """The share of words that the text holds: as they are, inflected, or spelled into another."""
    if not words:
        return 0.0
    several = len(words) > 1
    return sum(_holds_word(word, text, several) for word in words[:2000]) / len(words[:2000])


def _holds_word(word: str, text: RequestText, several: bool) -> bool:
    if word in text.tokens or stem_word(word) in text.tokens:
        return True
    if len(word) > 4 and word in text.squeezed:
        return True
    if word.isdecimal():
        return len(word) < 15 and float(word) in text.numbers
    if text.tokens & set(make_names().get(word, ())) or names_direction(word, text.folded):
        return True
    # "parser" for "parse", "wetness" for "wet": only in company, as names differ by their ends.
    return (
        several
        and word.isalpha()
        and len(word) >= 5
        and word[: max(5, min(7, len(word) - 2))] in text.beginnings
    )


def grade_switch(name: str, text: RequestText) -> str:
    stems = {stem_word(word) for word in split_identifier(name) if len(word) > 2} - {
        "includ",
        "enabl",
        "use",
    }
    return STATED if not stems or stems & text.tokens or _POLARITY.search(text.folded) else LIKELY


_POLARITY = re.compile(
    r"\b(?:with|without|no|not|don't|on|off|only|also|all|every|any|too|even|just|never|skip|leave"
    r"|include|exclude|but|yes|first|last|ohne|mit|nur|sans|avec|sin|con|solo|sem|com)\b|n't|[^\x00-\x7f]"
)


def grade_string(value: str, schema: Schema, name: str, text: RequestText) -> str:
    squeezed = squeeze_text(value)
    if not squeezed:
        # "*", "+", "…": symbols are stated literally or they are not.
        return STATED if value.strip() in text.raw else LIKELY
    other = _names_another_choice(squeezed, schema, text)
    if _holds_literally(value, squeezed, text):
        return STATED
    if days := parse_days(value):
        return min((text.grade_day(day) for day in days), key=(STATED, LIKELY, ABSENT).index)
    if re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        return _grade_digits(value, text)
    if re.fullmatch(r"\+\d[\d ().-]{5,20}", value):
        return _grade_digits(re.sub(r"\D", "", value), text)
    if (clock := grade_time(value, text.folded)) == STATED:
        return clock
    if len(value) < 400 and re.fullmatch(r"[\d.]+(?:\s*[,;|x:]\s*[\d.]+)+", value):
        figures = re.findall(r"\d+(?:\.\d+)?", value)
        return STATED if all(float(part) in text.numbers for part in figures) else ABSENT
    if value.lower() in ("true", "false"):
        return grade_switch(name, text)
    iso = re.fullmatch(r"pt?(\d{1,4}[smhdwy])", squeezed)  # PT15M and P7D are 15m and 7d
    spelling = iso[1] if iso else squeezed
    if (step := grade_step(spelling, text.folded, text.numbers)) is not None:
        return ABSENT if other and step != STATED else step
    if not other and _holds_known_name(value, squeezed, text):
        return STATED
    return grade_words(value, squeezed, schema, name, text, other)


def _names_another_choice(squeezed: str, schema: Schema, text: RequestText) -> bool:
    """Whether the text names another choice of the same list, and not this one."""
    choices = schema.get("enum")
    if not isinstance(choices, list) or squeezed in text.words:
        return False
    others = {squeeze_text(str(choice)[:80]) for choice in choices[:500]} - {squeezed}
    long_choices = {other for other in others if len(other) > 2}
    if long_choices & text.words:
        return True
    return bool(long_choices & text.tokens) and not (
        {squeezed, *make_names().get(squeezed, ())} & text.tokens
    )


_SCHEME = re.compile(r"^(?:https?|file|ssh|git|ftp)://(?:www\.)?", re.IGNORECASE)


def _holds_literally(value: str, squeezed: str, text: RequestText) -> bool:
    """Whether the text holds the value as it is written, separators and case aside. Digits beside
    it belong to another value: 5min is not in 15min."""
    plain = re.sub(r"^v(?=\d{1,9}\.)", "", fold_text(value).strip())
    if len(plain) > 2 and any(
        _stands_alone(plain, at, text.folded) for at in _find_places(plain, text.folded)
    ):
        return True
    if len(squeezed) <= 3:
        return bool({squeezed, f"{squeezed}s"} & text.words)
    bare = squeeze_text(_SCHEME.sub("", value))
    return any(
        _stands_alone_squeezed(spelling, at, text)
        for spelling in (squeezed, bare)
        if len(spelling) > 3
        for at in _find_places(spelling, text.squeezed)
    )


def _find_places(part: str, whole: str) -> Iterator[int]:
    at = whole.find(part)
    for _ in range(20):
        if at < 0:
            return
        yield at
        at = whole.find(part, at + 1)


def _stands_alone(value: str, at: int, folded: str) -> bool:
    before, after = folded[max(0, at - 1) : at], folded[at + len(value) : at + len(value) + 2]
    if value[0].isdigit() and (before.isdigit() or (before == "." and folded[at - 2].isdigit())):
        return False
    return not (value[-1].isdigit() and re.match(r"\d|\.\d", after))


def _stands_alone_squeezed(squeezed: str, at: int, text: RequestText) -> bool:
    end, places = at + len(squeezed), text.places
    if squeezed[0].isdigit() and at and places[at] - places[at - 1] == 1:
        return not text.squeezed[at - 1].isdigit()
    if squeezed[-1].isdigit() and end < len(places) and places[end] - places[end - 1] == 1:
        return not text.squeezed[end].isdigit()
    return True


def _grade_digits(value: str, text: RequestText) -> str:
    """A number written as a string: by its value, as a day, or digit by digit (a phone number)."""
    number = float(value)
    if number in text.numbers and not (value[0] == "0" and len(value) > 1):
        return STATED
    bare = value.lstrip("-")
    if bare in text.digits or (
        len(bare) > 7 and any(bare.endswith(d) for d in text.digits if len(d) > 6)
    ):
        return STATED
    if (day := parse_epoch_day(number)) is not None:
        return text.grade_day(day)
    return STATED if number in text.numbers else ABSENT


def _holds_known_name(value: str, squeezed: str, text: RequestText) -> bool:
    if text.tokens & set(make_names().get(squeezed, ())) or (
        len(squeezed) > 1 and squeezed in text.tokens
    ):
        return True
    if any(sign in text.folded for sign in make_names().get(squeezed, ()) if not sign.isalnum()):
        return True
    return names_direction(squeezed, text.folded) or names_code(value, text.spaced, text.tokens)


# ruff: noqa: E501  (tables of patterns read better unbroken)


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
            members_by_path = [
                (f"{path}.{name}" if path else str(name), member) for name, member in members
            ]
            stack += reversed(members_by_path)
        elif isinstance(value, list):
            stack += reversed([(f"{path}[{n}]", m) for n, m in enumerate(value[:MOST_LEAVES])])
        else:
            count += 1
            yield path, value


def grade_value(
    value: Json, schema: Schema, name: str, text: RequestText, *, listed: bool = False
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
        return _grade_number(value, name, text, listed)
    return grade_string(str(value)[:LONGEST], schema, name, text)


_PLACES = {"lat", "lon", "lng", "latitude", "longitude", "long"}
_INDEXES = {"index", "idx", "position", "offset", "row", "column", "col", "page", "skip", "tab"}


def _grade_number(number: float, name: str, text: RequestText, listed: bool) -> str:
    try:
        value = float(number)
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


_NEGATIVE = re.compile(r"south|west|minus|below|negative|\d\s{0,3}°?\s{0,3}[swo]\b|sud|oeste|ouest")
_FACTORS = (
    10, 100, 1000, 1e6, 1e9, 60, 3600, 60000, 24, 7, 30, 365, 12, 1024, 1024**2, 0.1, 0.01, 0.001,
)  # fmt: skip


_UNITS_OF_TIME = (60, 3600, 86_400, 604_800, 2_592_000)


def _matches_span(value: float, text: RequestText) -> bool:
    """Whether a length of time that is said comes to this many of some unit."""
    if value != round(value, 1) or value <= 0:
        return False
    candidates = {value, value / 1000, *(value * unit for unit in _UNITS_OF_TIME)}
    return any(
        _round(candidate / unit) in text.numbers.read
        for candidate in candidates
        for unit in text.time_units
    )


_SCALED = [
    (re.compile(unit), factor) for unit, factor in read_data(__file__, "words.toml")["scaled"]
]


def _matches_scaled(value: float, text: RequestText) -> bool:
    """Whether a number of the text, with the unit that the text names, comes to `value`."""
    factors = (factor for unit, factor in _SCALED if unit.search(text.folded))
    return any(_round(value / factor) in text.numbers.read for factor in factors)


def _round(value: float) -> float:
    """Without the error of a division: 1.75 / 0.01 is 175."""
    return float(f"{value:.12g}")


def _has_other_sign(value: float, folded: str) -> bool:
    """Whether the text gives this coordinate the other hemisphere: 33.85 south for 33.85."""
    written = re.escape(f"{abs(value):.10f}".rstrip("0").rstrip("."))
    away = rf"(?<![\d.]){written}0{{0,20}}\s{{0,3}}(?:°|degrees?\b|deg\b)?\s{{0,3}}(?:(?:s|w)\b|south|west|sud\b|oeste|ouest|sur\b|guney|bati)"
    return value > 0 and re.search(away, folded) is not None
