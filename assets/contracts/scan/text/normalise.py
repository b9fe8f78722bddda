"""Words: a text as words that compare equal however they are dressed up, with their places.

Chinese, Japanese and Korean characters are words of their own, so one matcher serves all scripts.
"""

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from assets.contracts.scan.text.lookalike import fold_latin
from warehouse.sanitize.unseen import find_seen

SENTENCE, _PARAGRAPH = 4, 8  # how many words of distance an end of sentence or paragraph adds
_WORD_CAP = 64

_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_MARKS = "\u0300-\u036f\u0483-\u0487\u20d0-\u20ff"  # struck-through and stacked letters
_LETTER = rf"(?:(?![{_WIDE}_])[\w{_MARKS}])"
_TOKEN = re.compile(rf"[{_WIDE}]|(?:(?<![\w.])\.)?{_LETTER}+(?:['’]{_LETTER}+)*")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SPACED = re.compile(r"(?<!\w)(?:\w[ .\-*_]){4,200}\w(?!\w)")
_LEET = str.maketrans("013457@$", "oieastas")


@dataclass(frozen=True)
class Words:
    """words[i] stands at text[starts[i]:ends[i]]; places[i] counts words, more across sentences."""

    words: list[str]
    starts: list[int]
    ends: list[int]
    places: list[int]

    def at(self, offset: int) -> int:
        """The index of the last word that starts at or before the offset, -1 before the first."""
        return bisect_right(self.starts, offset) - 1


def split_words(text: str, *, name: bool = False) -> Words:
    """The words of a text. `name`: an identifier, whose camelCase parts are words too."""
    shown, offsets = find_seen(text)
    found: list[tuple[str, int, int]] = []
    joined = _join_letters(shown)
    for token in _TOKEN.finditer(shown):
        start, end = token.span()
        if start in joined:
            word, end = joined[start]
            found.append((word, start, end))
        elif found and start < found[-1][2]:
            continue  # within letters that were joined
        elif name:
            found += [(p[0], start + p.start(), start + p.end()) for p in _CAMEL.finditer(token[0])]
            if not token[0].isascii():
                found.append((token[0], start, end))
        else:
            found.append((token[0], start, end))
    places, place, before = [], 0, 0
    for at, (_, start, end) in enumerate(found):
        abbreviated = at > 0 and len(found[at - 1][0]) == 1 and shown[before - 1 : before].isascii()
        place += 1 + (
            0 if abbreviated else _measure_distance(shown[before:start])
        )  # "e.g. " ends nothing
        places.append(place)
        before = end
    return Words(
        [fold_text(word[:_WORD_CAP]) for word, _, _ in found],
        [offsets[start] if offsets else start for _, start, _ in found],
        [offsets[end - 1] + 1 if offsets else end for _, _, end in found],
        places,
    )


def collect_words(text: str) -> frozenset[str]:
    """The words of a plain list."""
    return frozenset(text.split())


@lru_cache(maxsize=65_536)
def fold_text(word: str) -> str:
    """Lower case, no accents, no apostrophes, compatible forms (fullwidth, mathematical) as one."""
    text = unicodedata.normalize("NFKC", word).casefold().replace("’", "'")
    text = text.replace("'", "")
    if text.isascii():
        return text
    if any("\u3040" <= char <= "\ud7af" for char in text):
        return text  # taking a voicing mark off would make another word
    apart = unicodedata.normalize("NFKD", text)
    return "".join(char for char in apart if not unicodedata.combining(char))


@lru_cache(maxsize=65_536)
def list_readings(word: str) -> tuple[str, ...]:
    """What a folded word may stand for: itself, with Latin look-alikes, with letters for digits."""
    out = [word]
    if not word.isascii():
        out.append(fold_latin(word))
    if not word.isalpha() and not word.isdigit():
        out.append(word.translate(_LEET))
    return tuple(dict.fromkeys(out))


def _join_letters(text: str) -> dict[int, tuple[str, int]]:
    """Letters spaced apart, by where they start: (the word they make, where it ends)."""
    out: dict[int, tuple[str, int]] = {}
    for run in _SPACED.finditer(text):
        word = run[0][0::2]
        if word.isalpha():
            out[run.start()] = (word, run.end())
    return out


def _measure_distance(between: str) -> int:
    if len(between) < 2 and between not in ("\n", "。", "！", "？"):
        return 0
    if "\n\n" in between:
        return _PARAGRAPH
    return SENTENCE if any(sign in between for sign in ".!?;。！？\n") else 0
