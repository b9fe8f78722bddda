"""Is a string in the text in other words: its own inflected, its parts, its figures?"""

import re

from assets.synthesis.verify.grounding.dates import ABSENT, LIKELY, RELATIVE_TIME, STATED
from assets.synthesis.verify.grounding.folding import fold_text, stem_word
from assets.synthesis.verify.grounding.known_names import make_names, names_direction
from assets.synthesis.verify.grounding.request import Text
from assets.vectors.lexicon import (
    collect_words,
    find_base_form,
    find_family,
    split_identifier,
)
from warehouse.json_types import Schema

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
    value: str, squeezed: str, schema: Schema, name: str, text: Text, other: bool
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
    named = set(split_identifier(name))
    if named & _OPERATIONS and (share >= 0.5 or _is_same_family(split_identifier(value), text)):
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
    if share >= (0.5 if len(content) > 2 and named & _COMPOSED else 0.7):
        return STATED
    return (
        LIKELY if share > 0 or (RELATIVE_TIME.search(text.folded) and _is_timely(name)) else ABSENT
    )


# "1) First …", and the 0 of 0.27, which people say as 27 percent.
_COUNTERS = re.compile(r"(?:^|(?<=\s))\d[.)](?=\s)|\b0\.(?=\d)")


def _holds_figures(words: list[str], text: Text, *, program: bool) -> bool:
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
_PROGRAM = re.compile(
    r"\n|;\s|\w\(|\bselect\b.{1,400}\bfrom\b|==|=>|\\|</?\w+[\s>]|\s--?\w", re.IGNORECASE
)


def _is_same_family(words: tuple[str, ...], text: Text) -> bool:
    """Whether the text's verbs do what the value's verb does: add, create, make."""
    verb = find_base_form(words[0]) if words else None
    return verb is not None and find_family(verb) in text.families


def _is_timely(name: str) -> bool:
    return bool(
        set(split_identifier(name)) & {"date", "time", "day", "start", "end", "since", "until"}
    )


def _count_share(words: list[str], text: Text) -> float:
    """The share of words that the text holds: as they are, inflected, or spelled into another."""
    if not words:
        return 0.0
    several = len(words) > 1
    return sum(_holds_word(word, text, several) for word in words[:2000]) / len(words[:2000])


def _holds_word(word: str, text: Text, several: bool) -> bool:
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
