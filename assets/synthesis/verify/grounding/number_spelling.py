"""How numbers are said in words, as num2words spells them in several languages."""

import re
from collections.abc import Mapping
from functools import cache

from assets.synthesis.verify.grounding.folding import fold_text
from assets.vectors.lexicon import split_list

_LANGUAGES = split_list("en de fr es pt it nl tr pl ru sv id ar ja ko")  # num2words writes them
_EVERYDAY = {"on", "en", "do", "an"}  # words of English or Spanish before they are numbers
HALVES = ("and a half", "y medio", "y media", "e meia", "e meio", "et demi", "et demie")
WORD = re.compile(r"[^\W\d_]+")


@cache
def _spell(number: float, language: str, to: str = "cardinal") -> list[str]:
    """The folded words that num2words writes a number in; none where it cannot."""
    from num2words import num2words

    try:
        return WORD.findall(fold_text(str(num2words(number, lang=language, to=to))))
    except (NotImplementedError, ArithmeticError, TypeError, ValueError, LookupError):
        return []


@cache
def list_spellings(number: float, language: str) -> frozenset[str]:
    """A number as words with one blank between them, as an ordinal or a year too: `two hundred
    six`, `twenty first`, `nineteen ninety six`, `two and a half`."""
    found = set[str]()
    for to in ("cardinal", "ordinal", "year") if number == int(number) else ("cardinal",):
        spelling = " ".join(_spell(number, language, to))
        found |= {spelling, spelling.replace(" and ", " "), spelling.removeprefix("one ")}
    if number > 0 and number % 1 == 0.5:
        whole = {str(int(number)), *list_spellings(int(number), language)}
        found |= {f"{one} {half}" for one in whole for half in HALVES}
    if number == int(number) and 100 < number < 10_000:  # three forty-two, twenty oh five
        first, last = (" ".join(_spell(part, language)) for part in divmod(int(number), 100))
        found |= {f"{first} {last}", f"{first} oh {last}"}
    return frozenset(found - _EVERYDAY - {""})


@cache
def make_vocabularies() -> dict[str, dict[str, int]]:
    """Language -> folded word -> the number below one hundred that it says."""
    ways = [(language, "cardinal") for language in _LANGUAGES] + [("en", "ordinal")]
    found: dict[str, dict[str, int]] = {language: {} for language in _LANGUAGES}
    for language, to in ways:
        for number in range(100):
            words = _spell(number, language, to)
            if len(words) == 1 and words[0] not in _EVERYDAY:
                found[language].setdefault(words[0], number)
    return found


@cache
def make_units() -> Mapping[str, int]:
    """Folded word of any language -> the number below one hundred that it says."""
    found = {"oh": 0}
    for words in make_vocabularies().values():
        found = words | found  # the first language that has a word says what it means
    return found


@cache
def make_scales() -> dict[str, float]:
    """Folded word -> what it multiplies the figures before it by."""
    found: dict[str, float] = {"dozen": 12, "dozens": 12, "grand": 1e3, "lakh": 1e5, "crore": 1e7}
    for language in _LANGUAGES:
        for scale in (100, 1_000, 10**6, 10**9):
            for number in (1, 2, 5):
                one, words = _spell(number, language)[-1], _spell(number * scale, language)
                found.setdefault(words[-1].removeprefix(one) or words[-1], scale)
    return found | {f"{word}s": found[word] for word in ("hundred", "thousand", "million")}


def read_number_word(word: str) -> float | None:
    """The number that one word says, or None."""
    value = make_units().get(word)
    return None if value is None else float(value)
