"""Numbers as people say and write them, in several languages and scripts."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import islice

from assets.synthesis.verify.grounding.folding import fold_text
from assets.vectors.lexicon import split_list

_LANGUAGES = split_list("en de fr es pt it nl tr pl ru sv id ar")  # of those that num2words writes
_EVERYDAY = {"on", "en", "do", "an"}  # words of English or Spanish before they are numbers
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
_GLUED = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "bn": 1e9, "mm": 1e6, "t": 1e12}
_MOST = 5000  # numbers read out of one text; nobody says more, and a dump of digits is no request


@cache
def _make_units() -> dict[str, int]:
    """Folded word -> the number below one hundred that it says."""
    found = {"oh": 0}
    for language in _LANGUAGES:
        for number in range(100):
            words = _spell_number(number, language)
            if len(words) == 1 and words[0] not in _EVERYDAY:
                found.setdefault(words[0], number)
    return found


@cache
def _make_scales() -> dict[str, float]:
    """Folded word -> what it multiplies the number before it by."""
    found: dict[str, float] = {"dozen": 12, "dozens": 12, "grand": 1e3, "lakh": 1e5, "crore": 1e7}
    for language in _LANGUAGES:
        for scale in (100, 1_000, 10**6, 10**9):
            found.setdefault(_spell_number(scale, language)[-1], scale)
            for number in (2, 5):
                words, one = (
                    _spell_number(number * scale, language),
                    _spell_number(number, language)[-1],
                )
                if len(words) > 1 or words[0].startswith(one):
                    found.setdefault(words[-1].removeprefix(one), scale)
    return found | {f"{word}s": found[word] for word in ("hundred", "thousand", "million")}


@cache
def _make_ordinals() -> dict[str, int]:
    """first, twentieth: what ends a number."""
    numbers = (*range(1, 20), *range(20, 100, 10))
    return {_spell_number(number, "en", "ordinal")[-1]: number for number in numbers}


@cache
def _make_points() -> set[str]:
    """What is said for the decimal point."""
    spelled = [_spell_number(1.5, language) for language in _LANGUAGES]
    return {"dot", *(words[1] for words in spelled if len(words) == 3)}


def _spell_number(number: float, language: str, to: str = "cardinal") -> list[str]:
    from num2words import num2words

    return re.findall(r"[^\W\d_]+", fold_text(str(num2words(number, lang=language, to=to))))


def find_numbers(folded: str) -> set[float]:
    """Every number the folded text states, in digits or words (several languages)."""
    found: set[float] = set()
    for match in islice(_DIGITS.finditer(folded), _MOST):
        found |= _read_digits(match.group(), folded[match.end() : match.end() + 12])
    plain = re.finditer(r"(?<![\d.])(?<!\s-)\d{1,40}(?:\.\d{1,30})?|\d{1,40}", folded)
    for match in islice(plain, _MOST):  # 12x34, ids
        if not re.search(r"[\s(,:]-\d*$", folded[max(0, match.end() - 40) : match.end()]):
            found.add(float(match.group()))
    for match in islice(_POWERS.finditer(folded), _MOST):
        found.add(float(f"{match.group(1)}e{match.group(2)}"))
    glued = re.finditer(r"(?<![\d.,])(\d{1,30}(?:[.,]\d{1,30})?)\s?(k|mm?|g|bn?|t)\b", folded)
    for match in islice(glued, _MOST):
        found.add(float(match.group(1).replace(",", ".")) * _GLUED[match.group(2)])
    words = re.findall(r"[^\W\d_]+", folded.replace("-", " "))
    found |= (
        _read_words(words)
        | _read_decimals(words)
        | _read_spelled_digits(words)
        | set(_read_chinese(folded))
    )
    spaced = f" {folded.replace('-', ' ')} "
    found |= {float(n) for phrase, n in _PHRASES.items() if f" {phrase}" in spaced}
    found |= {1.0} if _A_UNIT.search(folded) else set()
    found |= _read_halves(folded)
    return found | {-number for number in found if re.search(r"\bminus\b", folded)}


def find_ranges(folded: str) -> list[tuple[float, float]]:
    """Spans of whole numbers that the text names by their ends: "grades 9 to 12", "1-5"."""
    to = r"-|to|through|until|bis|a|al|ate|jusqu'a|thru|\.\.+|~|〜|到|至|から"
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
    scale = _make_scales().get(following.group(1)) if following else None
    scale = scale or (1e4 if after.lstrip()[:1] in "万萬만" and after.strip() else None)
    return numbers | ({number * scale for number in numbers} if scale else set())


def _read_words(words: list[str]) -> set[float]:
    """Numbers in words: each part, and what each run of them says ("two hundred and six")."""
    found: set[float] = set()
    run: list[float | str] = []
    for word in [*words, ""]:
        value = read_number_word(word)
        if value is not None or (word in _make_scales() and (run or word in _BARE_SCALES)):
            run.append(word if value is None else value)
            found |= set() if value is None else {value}
            if word in _make_ordinals() or len(run) > 12:  # an ordinal ends its number
                found |= _sum_run(run)
                run = []
        elif run and word not in ("and", "y", "e", "et", "und", "en", "и", "و"):
            found |= _sum_run(run)
            run = []
    return found


_BARE_SCALES = {"hundred", "thousand", "mil", "сто"}


def read_number_word(word: str) -> float | None:
    """The number that one word says, or None."""
    value = _make_units().get(word, _make_ordinals().get(word))
    return None if value is None else float(value)


def _sum_run(run: list[float | str]) -> set[float]:
    """What a run of number words can mean: a sum with scales, or two halves of a year."""
    total, current = 0.0, 0.0
    for part in run:
        if isinstance(part, str):
            current = (current or 1.0) * _make_scales()[part]
            if _make_scales()[part] >= 1000:
                total, current = total + current, 0.0
        else:
            current += part
    found = {total + current}
    plain = [part for part in run if isinstance(part, float)]
    if len(plain) == len(run) and len(plain) > 1 and 0 < plain[0] < 100:
        found.add(plain[0] * 100 + sum(plain[1:]))  # nineteen ninety-six, three forty-two
        if len(plain) > 2 and plain[0] % 10 == 0:
            found.add((plain[0] + plain[1]) * 100 + sum(plain[2:]))  # twenty twenty-five
    return found


def _read_decimals(words: list[str]) -> set[float]:
    """ "zero point one two", "sixty-five point four", "drei Komma fünf"."""
    found: set[float] = set()
    for place, word in enumerate(words):
        if word not in _make_points() or place == 0 or place + 1 >= len(words):
            continue
        tail = ""
        for digit in words[place + 1 : place + 9]:
            if _make_units().get(digit, 10) > 9:
                break
            tail += str(_make_units()[digit])
        head = words[max(0, place - 6) : place]
        while head and read_number_word(head[0]) is None and head[0] not in _make_scales():
            head = head[1:]
        whole = _read_words(head)
        if tail and whole:
            found |= {number + float(f"0.{tail}") for number in whole if number == int(number)}
    return {round(number, 8) for number in found}


def _read_spelled_digits(words: list[str]) -> set[float]:
    """Digits said one by one: "two oh two", "eins null eins sieben acht"."""
    return {float(digits) for digits in find_spelled_digits(words) if len(digits) < 16}


def find_spelled_digits(words: list[str]) -> list[str]:
    """Runs of two or more digits said one by one, as they would be written."""
    runs, run = list[str](), ""
    for word in [*words, ""]:
        digit = _make_units().get(word, 10)
        if digit < 10:
            run += str(digit)
        else:
            if len(run) > 1:
                runs.append(run)
            run = ""
    return runs


_HALF = re.compile(
    r"\b(\w{1,20})(?:[ -](\w{1,20}))? (?:and a half|y medio|y media|e meia|e meio|et demie?)\b"
)


def _read_halves(folded: str) -> set[float]:
    """ "two and a half", "a minute and a half"."""
    found: set[float] = set()
    for match in _HALF.finditer(folded):
        for word in match.groups(default=""):
            value = float(word) if word.isdecimal() and len(word) < 9 else read_number_word(word)
            found |= {value + 0.5} if value is not None else set()
        found |= {1.5} if match.group(2) else set()
    return found


_HAN = re.compile(r"[零〇一二三四五六七八九十百千万萬亿億两兩]{1,20}")


def _read_chinese(folded: str) -> Iterator[float]:
    """Numbers in Chinese characters: 三百二十, 二〇二五."""
    for match in _HAN.finditer(folded):
        values = [unicodedata.numeric(char, 2.0) for char in match.group()]  # 两 is two
        yield from values
        if max(values) < 10:
            yield float("".join(str(int(value)) for value in values))
            continue
        total, section, digit = 0.0, 0.0, 0.0
        for value in values:
            if value < 10:
                digit = value
            elif value >= 10_000:
                total, section, digit = total + (section + digit or 1) * value, 0.0, 0.0
            else:
                section, digit = section + (digit or 1) * value, 0.0
        yield total + section + digit
