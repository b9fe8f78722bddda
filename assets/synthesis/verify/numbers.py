"""Reads numbers of a text in several languages: figures, and words as num2words spells them."""

import re
import unicodedata
from collections.abc import Container, Iterator, Mapping
from functools import cache, cached_property
from itertools import islice, pairwise

from assets.synthesis.verify.words import fold_text
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
    """A number in words, as an ordinal or a year too: `two hundred six`, `nineteen ninety six`."""
    spellings = set[str]()
    for to in ("cardinal", "ordinal", "year") if number == int(number) else ("cardinal",):
        spelling = " ".join(_spell(number, language, to))
        spellings |= {spelling, spelling.replace(" and ", " "), spelling.removeprefix("one ")}
    if number > 0 and number % 1 == 0.5:
        whole = {str(int(number)), *list_spellings(int(number), language)}
        spellings |= {f"{word} {half}" for word in whole for half in HALVES}
    if number == int(number) and 100 < number < 10_000:  # three forty-two, twenty oh five
        first, last = (" ".join(_spell(part, language)) for part in divmod(int(number), 100))
        spellings |= {f"{first} {last}", f"{first} oh {last}"}
    return frozenset(spellings - _EVERYDAY - {""})


@cache
def make_vocabularies() -> dict[str, dict[str, int]]:
    """Language -> folded word -> the number below one hundred that it says."""
    ways = [(language, "cardinal") for language in _LANGUAGES] + [("en", "ordinal")]
    vocabularies: dict[str, dict[str, int]] = {language: {} for language in _LANGUAGES}
    for language, to in ways:
        for number in range(100):
            words = _spell(number, language, to)
            if len(words) == 1 and words[0] not in _EVERYDAY:
                vocabularies[language].setdefault(words[0], number)
    return vocabularies


@cache
def make_units() -> Mapping[str, int]:
    """Folded word of any language -> the number below one hundred that it says."""
    units = {"oh": 0}
    for words in make_vocabularies().values():
        units = words | units  # the first language that has a word says what it means
    return units


@cache
def make_scales() -> dict[str, float]:
    """Folded word -> what it multiplies the figures before it by."""
    scales: dict[str, float] = {"dozen": 12, "dozens": 12, "grand": 1e3, "lakh": 1e5, "crore": 1e7}
    for language in _LANGUAGES:
        for scale in (100, 1_000, 10**6, 10**9):
            for number in (1, 2, 5):
                unit_word, words = _spell(number, language)[-1], _spell(number * scale, language)
                scales.setdefault(words[-1].removeprefix(unit_word) or words[-1], scale)
    return scales | {f"{word}s": scales[word] for word in ("hundred", "thousand", "million")}


def read_number_word(word: str) -> float | None:
    """The number that one word says, or None."""
    value = make_units().get(word)
    return None if value is None else float(value)


_WORD_OR_FIGURES = re.compile(r"[^\W_]+")
_PHRASES = {
    "a couple": 2, "a pair": 2, "both": 2, "twice": 2, "double": 2, "once": 1, "triple": 3,
    "a dozen": 12, "half a dozen": 6, "half": 0.5, "half an hour": 30, "quarter of an hour": 15,
    "a quarter": 0.25, "three quarters": 0.75, "a third": 1 / 3, "fortnight": 14, "single": 1,
    "a hundred": 100, "a thousand": 1000, "a million": 1e6, "a billion": 1e9, "none": 0, "no": 0,
    "without": 0,
}  # fmt: skip
_A_UNIT = re.compile(
    r"\b(?:an?|per|every|each|one|eine[nr]?|une?|una|uno|um|uma|bir)[ -](?:minute|hour|second|day"
    r"|week|month|year|tag|woche|stunde|minuto?|hora|heure|semaine|semana|dia|jour|saat|gun|hafta)\b"
)
_DIGITS = re.compile(
    r"(?<![\w.])-?\d{1,3}(?:[,' .]\d{3}){1,9}(?:[.,]\d{1,30})?(?!\d)"
    r"|(?<![\d.])-?\d{1,40}(?:[.,]\d{1,30})?"
)
_POWERS = re.compile(
    r"(?<![\d.])(-?\d{1,30}(?:\.\d{1,30})?)\s?(?:e|(?:x|×|\*|·)\s?10\s?\^?)\s?([+-]?\d{1,3})\b"
)
_GLUED = re.compile(r"(?<![\d.,])(\d{1,30}(?:[.,]\d{1,30})?)\s?(k|mm?|g|bn?|t)\b")
_GLUES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "bn": 1e9, "mm": 1e6, "t": 1e12}
_MOST_SOUGHT = 500  # numbers that are looked for in words
_MOST = 5000  # numbers read out of one text; nobody says more, and a dump of digits is no request
_UNSPACED = ("ja", "ko")  # their words are not set apart


class TextNumbers(Container[float]):
    """The numbers of a folded text. `read`: those in figures or in one word, halves and phrases."""

    def __init__(self, folded: str) -> None:
        self._folded = folded
        self._words = WORD.findall(folded)
        self._spaced = f" {' '.join(_WORD_OR_FIGURES.findall(folded))} "
        self._sought = 0

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, (int, float)):
            return False
        if number in self.read:
            return True
        if number < 0:
            return "minus" in self._words and -number in self
        self._sought += 1
        if number > 1e12 or round(number, 3) != number or self._sought > _MOST_SOUGHT:
            return False  # nobody spells that out
        return any(
            f" {spelling} " in self._spaced
            if spelling.isascii() or " " in spelling
            else spelling in self._folded
            for language in self._languages
            for spelling in list_spellings(float(number), language)
        )

    @cached_property
    def _languages(self) -> list[str]:
        """The languages of which it holds a number word, or the script."""
        words, scales = set(self._words), make_scales()
        return [
            language for language, vocabulary in make_vocabularies().items()
            if not words.isdisjoint(vocabulary)
            or (language == "en" and not words.isdisjoint(scales))
            or (language in _UNSPACED and not self._folded.isascii())
        ]  # fmt: skip

    @cached_property
    def read(self) -> set[float]:
        folded = self._folded
        numbers: set[float] = set()
        for match in islice(_DIGITS.finditer(folded), _MOST):
            numbers |= _read_digits(match.group(), folded[match.end() : match.end() + 12])
        plain = re.finditer(r"(?<![\d.])(?<!\s-)\d{1,40}(?:\.\d{1,30})?|\d{1,40}", folded)
        for match in islice(plain, _MOST):  # 12x34, ids
            if not re.search(r"[\s(,:]-\d{0,40}$", folded[max(0, match.end() - 40) : match.end()]):
                numbers.add(float(match.group()))
        powers = islice(_POWERS.finditer(folded), _MOST)
        numbers |= {float(f"{match.group(1)}e{match.group(2)}") for match in powers}
        for match in islice(_GLUED.finditer(folded), _MOST):
            numbers.add(float(match.group(1).replace(",", ".")) * _GLUES[match.group(2)])
        units, scales = make_units(), make_scales()
        numbers |= {float(units[word]) for word in self._words if word in units}
        for first, second in pairwise(self._words):  # two dozen, twenty-five
            if first in units and second in scales:
                numbers.add(units[first] * scales[second])
            elif units.get(first, 1) % 10 == 0 and 0 < units.get(second, 0) < 10:
                numbers.add(float(units[first] + units[second]))
        numbers |= {
            float(digits) for digits in find_spelled_digits(self._words) if len(digits) < 16
        }
        spaced = f" {folded.replace('-', ' ')} "
        numbers |= {float(n) for phrase, n in _PHRASES.items() if f" {phrase}" in spaced}
        numbers |= {1.0} if _A_UNIT.search(folded) else set()
        numbers |= {1.5} if _ONE_AND_HALF.search(folded) else set()
        numbers |= set(_read_chinese(folded))
        return numbers


_ONE_AND_HALF = re.compile(rf"\b(?:an?|one|une?|una?|uma?) \w{{1,20}} (?:{'|'.join(HALVES)})\b")


def find_ranges(folded: str) -> list[tuple[float, float]]:
    """Spans of whole numbers that the text names by their ends: "grades 9 to 12", "1-5"."""
    to = r"-|to|through|until|bis|a|al|ate|jusqu'a|thru|\.{2,9}|~|〜|到|至|から"
    ends = re.finditer(rf"(?<!\d)(\d{{1,6}})\s?(?:{to})\s?(\d{{1,6}})\b", folded)
    spans = ((float(m.group(1)), float(m.group(2))) for m in islice(ends, _MOST))
    return [(low, high) for low, high in spans if 0 < high - low <= 400][:50]


def _read_digits(digits: str, after: str) -> set[float]:
    plain = digits.replace("'", "").replace(" ", "")
    # Both conventions: 1,000.5 and 1.000,5; what does not parse in one is the other.
    readings = (plain.replace(",", ""), plain.replace(".", "").replace(",", "."))
    numbers = {float(reading) for reading in readings if reading.count(".") <= 1}
    numbers |= {float(part) for part in digits.split() if re.fullmatch(r"-?\d+", part)}
    following = re.match(r"[\s-]*([^\W\d_]+)", after)
    scale = make_scales().get(following.group(1)) if following else None
    scale = scale or (1e4 if after.lstrip()[:1] in "万萬만" and after.strip() else None)
    return numbers | ({number * scale for number in numbers} if scale else set())


def find_spelled_digits(words: list[str]) -> list[str]:
    """Runs of two or more digits said one by one ("two oh two"), as they would be written."""
    written = "".join(str(n) if (n := make_units().get(word, 10)) < 10 else " " for word in words)
    return [run for run in written.split() if len(run) > 1]


def _read_chinese(folded: str) -> Iterator[float]:
    """Each numeral in Chinese characters, and what is written digit by digit: 二〇二五."""
    for run in re.findall(r"[零〇一二三四五六七八九十百千万萬亿億两兩]{1,20}", folded):
        values = [unicodedata.numeric(char, 2.0) for char in run]  # 两 is two
        yield from values
        if max(values) < 10:
            yield float("".join(str(int(value)) for value in values))
