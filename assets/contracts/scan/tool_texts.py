"""Texts of a tool with their JSON pointers, as words that compare equal however they are disguised.

Chinese, Japanese and Korean characters are words of their own, so one matcher serves all scripts.
The table of look-alikes holds the letters drawn alike in common fonts (after Unicode's
confusables.txt, UTS 39), in lower case; capitals are folded first.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warehouse.sanitize.untrusted_text import drop_unseen, find_seen, shorten_text

_STRICT = {
    "a": "аɑ", "b": "Ƅ", "c": "сϲⅽ", "d": "ԁⅾ", "e": "еҽ", "f": "ϝ", "g": "ɡց", "h": "һհ",
    "i": "іıιӏ", "j": "јϳ", "l": "ⅼǀ", "m": "ⅿ", "n": "ո", "o": "оοօ", "p": "рρ", "q": "ԛգ",
    "s": "ѕ", "u": "υսʋ", "v": "ѵν", "w": "ԝѡɯ", "x": "хχ", "y": "уүγ", "z": "ᴢ",
}  # fmt: skip
_AS_CAPITALS = {"b": "вβ", "e": "ε", "h": "нη", "k": "кκ", "m": "мμ", "t": "тτ", "z": "ζ"}
_LATIN = {
    ord(odd): plain
    for table in (_STRICT, _AS_CAPITALS)
    for plain, odds in table.items()
    for odd in odds
}
_EXACT = frozenset("".join(_STRICT.values()))
_DIGITS = str.maketrans("015", "ols")


def fold_latin(word: str) -> str:
    """A lower-case word with every look-alike letter as its Latin twin."""
    return word.translate(_LATIN)


def is_disguised(word: str, *, wholly: bool = False) -> bool:
    """Whether a word mixes Latin letters with look-alikes; `wholly`: or is spelled with look-alikes
    alone, as some honest Russian and Greek words are too."""
    if word.isascii():
        return False
    text = unicodedata.normalize("NFKC", word).casefold()
    odd = [char for char in text if ord(char) in _LATIN and "\u0370" <= char <= "\u058f"]
    if not odd or not fold_latin(text).isascii():
        return False
    mixed = len(odd) < len(text) and any("a" <= char <= "z" for char in text)
    units = mixed and set(odd) <= set("μη") and len(text) <= 4  # μs, μm
    return (mixed and not units) or (wholly and len(odd) >= 3 and _EXACT.issuperset(odd))


def fold_skeleton(name: str) -> str:
    """What a name looks like at a glance: without case, separators and look-alikes."""
    text = fold_latin(unicodedata.normalize("NFKC", name).casefold())
    text = "".join(char for char in text if char.isalnum())
    return text.translate(_DIGITS).replace("rn", "m").replace("vv", "w").replace("l", "i")


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
class WordList:
    """words[i] stands at text[starts[i]:ends[i]]; places[i] counts words, more across sentences."""

    words: list[str]
    starts: list[int]
    ends: list[int]
    places: list[int]

    def at(self, offset: int) -> int:
        """The index of the last word that starts at or before the offset, -1 before the first."""
        return bisect_right(self.starts, offset) - 1


def split_words(text: str, *, name: bool = False) -> WordList:
    """The words of a text. `name`: an identifier, whose camelCase parts are words too."""
    visible, offsets = find_seen(text)
    spans: list[tuple[str, int, int]] = []
    joined: dict[int, tuple[str, int]] = {}
    for run in _SPACED.finditer(visible):
        word = run[0][0::2]
        if word.isalpha():
            joined[run.start()] = (word, run.end())
    for token in _TOKEN.finditer(visible):
        start, end = token.span()
        if start in joined:
            word, end = joined[start]
            spans.append((word, start, end))
        elif spans and start < spans[-1][2]:
            continue  # within letters that were joined
        elif name:
            spans += [(p[0], start + p.start(), start + p.end()) for p in _CAMEL.finditer(token[0])]
            if not token[0].isascii():
                spans.append((token[0], start, end))
        else:
            spans.append((token[0], start, end))
    places, place, before = [], 0, 0
    for at, (_, start, end) in enumerate(spans):
        abbreviated = (
            at > 0 and len(spans[at - 1][0]) == 1 and visible[before - 1 : before].isascii()
        )
        place += 1 + (
            0 if abbreviated else _measure_distance(visible[before:start])
        )  # "e.g. " ends nothing
        places.append(place)
        before = end
    return WordList(
        [fold_text(word[:_WORD_CAP]) for word, _, _ in spans],
        [offsets[start] if offsets else start for _, start, _ in spans],
        [offsets[end - 1] + 1 if offsets else end for _, _, end in spans],
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


def _measure_distance(between: str) -> int:
    if len(between) < 2 and between not in ("\n", "。", "！", "？"):
        return 0
    if "\n\n" in between:
        return _PARAGRAPH
    return SENTENCE if any(sign in between for sign in ".!?;。！？\n") else 0


TEXT_CAP = 65_536  # characters read of one string
FIELD_CAP = 20_000  # strings read of one tool
TOTAL_CAP = 1_000_000  # characters read of one tool
DEPTH_CAP = 96
POINTER_CAP = 1_000
STRINGS_CAP = 100_000  # strings read of one result
_OVERLAP = 1_024  # characters that two pieces of a long string share: no phrase is longer
_SHORT, _BATCH = (200, 300)  # characters of a string read with its neighbours; how many
_PARAGRAPH_FIELDS = (
    "\n\n.\n"  # parts two strings: ends a paragraph, begins no turn of a chat template
)

# Names that the format itself gives: as member names they say nothing.
_KEYWORDS = collect_words(
    "type properties required description title default enum const examples items anyOf oneOf"
    " allOf format pattern minimum maximum minLength maxLength additionalProperties $schema"
    " $ref $defs definitions name inputSchema outputSchema annotations readOnlyHint"
    " destructiveHint idempotentHint openWorldHint parameters nullable minItems maxItems not"
    " if then else"
)
_PROSE = frozenset(("description", "title", "$comment", "markdownDescription"))


@dataclass(frozen=True)
class ToolText:
    """One string. role: "name" (of a tool or member), "prose" or "data" (enum, default, …).
    parameter: the nearest property name above it, "" outside of schemas."""

    field: str
    text: str
    role: str
    parameter: str = ""


@dataclass
class ToolTexts:
    """What was read of one tool, and which limits cut it short."""

    texts: list[ToolText]
    capped: list[tuple[str, str]]  # (field, what was cut)


def read_fields(tool: Any) -> ToolTexts:
    """All strings of any JSON value; members first to last, parents before children."""
    out = ToolTexts([], [])
    total = 0
    for text in _walk_fields(tool, out):
        if len(out.texts) >= FIELD_CAP or total >= TOTAL_CAP:
            out.capped.append((text.field, "more text than is read of one tool"))
            break
        if len(text.text) > TEXT_CAP:
            out.capped.append((text.field, f"{len(text.text)} characters, {TEXT_CAP} read"))
            text = ToolText(text.field, text.text[:TEXT_CAP], text.role, text.parameter)
        total += len(text.text)
        out.texts.append(text)
    return out


def read_pieces(value: Any, most: int) -> ToolTexts:
    """All strings of any JSON value, `most` characters in all: long ones in pieces that overlap,
    short ones joined as paragraphs (a row of a table costs by its length then), none twice."""
    out, seen_texts, short = ToolTexts([], []), set(), list[ToolText]()
    for text in _walk_fields(value, out):
        if text.text in seen_texts:
            continue
        if most <= 0 or len(seen_texts) >= STRINGS_CAP:
            out.capped.append((text.field, "more text than is read of one result"))
            break
        seen_texts.add(text.text)
        excerpt = text.text[:most]
        if len(excerpt) < len(text.text):
            out.capped.append((text.field, f"{len(text.text)} characters, {len(excerpt)} read"))
        most -= len(excerpt) + len(_PARAGRAPH_FIELDS)
        if text.role == "data" and len(excerpt) <= _SHORT:
            short.append(text)
            continue
        # Unseen characters may stretch a phrase over more than two pieces share.
        seen_text = drop_unseen(excerpt) if len(excerpt) > TEXT_CAP else excerpt
        for whole in dict.fromkeys((excerpt, seen_text)):
            for start in range(0, max(1, len(whole) - _OVERLAP), TEXT_CAP - _OVERLAP):
                piece = whole[start : start + TEXT_CAP]
                out.texts.append(ToolText(text.field, piece, text.role, text.parameter))
    for batch in (short[at : at + _BATCH] for at in range(0, len(short), _BATCH)):
        joined = _PARAGRAPH_FIELDS.join(short_text.text[:_SHORT] for short_text in batch)
        out.texts.append(ToolText(batch[0].field, joined, "data", batch[0].parameter))
    return out


def _walk_fields(tool: Any, out: ToolTexts) -> Iterator[ToolText]:
    # (value, pointer, the member's name, the property it belongs to, depth)
    stack: list[tuple[Any, str, str, str, int]] = [(tool, "", "", "", 0)]
    while stack:
        value, at, key, parameter, depth = stack.pop()
        if isinstance(value, str):
            yield ToolText(at, value, _choose_role(at, key), parameter)
        elif not isinstance(value, Mapping | list | tuple):
            continue
        elif depth >= DEPTH_CAP:
            out.capped.append((at, f"nested deeper than {DEPTH_CAP} levels"))
        elif isinstance(value, Mapping):
            is_properties = key == "properties"
            below = []
            for name, child in value.items():
                name = str(name)
                field = _format_pointer(at, name)
                if is_properties or name not in _KEYWORDS:
                    yield ToolText(field + "#", name, "name", name if is_properties else parameter)
                below.append((child, field, name, name if is_properties else parameter, depth + 1))
            stack.extend(reversed(below))
        else:
            stack.extend(
                (value[i], _format_pointer(at, str(i)), key, parameter, depth + 1)
                for i in range(len(value) - 1, -1, -1)
            )


def _format_pointer(at: str, name: str) -> str:
    token = name.replace("~", "~0").replace("/", "~1")
    return shorten_text(f"{at}/{token}", POINTER_CAP)


def _choose_role(at: str, key: str) -> str:
    if at == "/name":
        return "name"
    return "prose" if key in _PROSE else "data"
