"""Is a string in the text? As written, by another name, as a date, a step or in other words."""

import re
from collections.abc import Iterator

from assets.synthesis.verify.grounding.dates import (
    ABSENT,
    LIKELY,
    STATED,
    parse_days,
    parse_epoch_day,
)
from assets.synthesis.verify.grounding.folding import fold_text, squeeze_text, stem_word
from assets.synthesis.verify.grounding.known_names import make_names, names_code, names_direction
from assets.synthesis.verify.grounding.request import Text
from assets.synthesis.verify.grounding.times import grade_step, grade_time
from assets.synthesis.verify.grounding.wording import grade_words
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Schema


def grade_switch(name: str, text: Text) -> str:
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


def grade_string(value: str, schema: Schema, name: str, text: Text) -> str:
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
        parts = re.findall(r"\d+(?:\.\d+)?", value)
        return STATED if all(float(part) in text.numbers for part in parts) else ABSENT
    if value.lower() in ("true", "false"):
        return grade_switch(name, text)
    if (step := grade_step(_strip_iso_step(squeezed), text.folded, text.numbers)) is not None:
        return ABSENT if other and step != STATED else step
    if not other and _holds_known_name(value, squeezed, text):
        return STATED
    return grade_words(value, squeezed, schema, name, text, other)


def _strip_iso_step(squeezed: str) -> str:
    """PT15M and P7D are steps as 15m and 7d are."""
    iso = re.fullmatch(r"pt?(\d{1,4}[smhdwy])", squeezed)
    return iso.group(1) if iso else squeezed


def _names_another_choice(squeezed: str, schema: Schema, text: Text) -> bool:
    """Whether the text names another choice of the same list, and not this one."""
    choices = schema.get("enum")
    if not isinstance(choices, list) or squeezed in text.words:
        return False
    others = {squeeze_text(str(choice)[:80]) for choice in choices[:500]} - {squeezed}
    named = {other for other in others if len(other) > 2}
    if named & text.words:
        return True
    return bool(named & text.tokens) and not (
        {squeezed, *make_names().get(squeezed, ())} & text.tokens
    )


_SCHEME = re.compile(r"^(?:https?|file|ssh|git|ftp)://(?:www\.)?", re.IGNORECASE)


def _holds_literally(value: str, squeezed: str, text: Text) -> bool:
    """Whether the text holds the value as it is written, separators and case aside. Digits beside
    it belong to another value: 5min is not in 15min."""
    plain = re.sub(r"^v(?=\d+\.)", "", fold_text(value).strip())
    if len(plain) > 2 and any(
        _stands_alone(plain, at, text.folded) for at in _find_places(plain, text.folded)
    ):
        return True
    if len(squeezed) <= 3:
        return bool({squeezed, f"{squeezed}s"} & text.words)
    bare = squeeze_text(_SCHEME.sub("", value))
    return any(
        _stands_alone_squeezed(held, at, text)
        for held in (squeezed, bare)
        if len(held) > 3
        for at in _find_places(held, text.squeezed)
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


def _stands_alone_squeezed(squeezed: str, at: int, text: Text) -> bool:
    end, places = at + len(squeezed), text.places
    if squeezed[0].isdigit() and at and places[at] - places[at - 1] == 1:
        return not text.squeezed[at - 1].isdigit()
    if squeezed[-1].isdigit() and end < len(places) and places[end] - places[end - 1] == 1:
        return not text.squeezed[end].isdigit()
    return True


def _grade_digits(value: str, text: Text) -> str:
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


def _holds_known_name(value: str, squeezed: str, text: Text) -> bool:
    """Whether the text has a word that stands for the value."""
    if text.tokens & set(make_names().get(squeezed, ())) or (
        len(squeezed) > 1 and squeezed in text.tokens
    ):
        return True
    if any(sign in text.folded for sign in make_names().get(squeezed, ()) if not sign.isalnum()):
        return True
    return names_direction(squeezed, text.folded) or names_code(value, text.spaced, text.tokens)
