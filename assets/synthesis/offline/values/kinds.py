"""What sort of value a parameter wants (a city, a path, a title), by its words."""

import json
import re
from functools import lru_cache
from pathlib import Path

from assets.synthesis.common.contract_reading import Slot
from assets.vectors.lexicon import collect_words

# marks: sort of value -> words of a parameter's name; themes: sort -> what its tool speaks of.
_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Two-word marks are tried before one-word marks.
_MARKS = {mark: sort for sort, marks in _TABLE["marks"].items() for mark in marks}


def find_sort(slot: Slot) -> str:
    """The pool or maker for a string parameter, by the words of its name, then its description."""
    words = list(slot.words)
    if len(slot.hint) <= _BRIEF and (stated := _find_stated_sort(slot.hint)):
        return stated
    if words == ["target"] and " git " in f" {slot.about} ":
        return "branch"
    if words == ["name"] and _PEOPLE.search(slot.about):
        return "person"
    if words == ["expression"] and _MATHS.search(slot.theme):
        return "math"
    if words == ["address"] and _CHAIN.search(slot.theme):
        return "wallet"
    if words == ["path"] and _FOLDER.search(slot.about):
        return "folder_path"
    for size in (2, 1):
        for start in range(len(words) - size, -1, -1):
            mark = " ".join(words[start : start + size])
            if words[-1] in ("id", "ids", "uid", "uuid", "guid") and mark not in _MARKS:
                continue
            if mark in _MARKS and not (size == 1 and words[-1] in ("id", "ids", "uid", "uuid")):
                return _MARKS[mark]
    if words and words[-1] in ("id", "ids", "uid", "key", "slug", "ref"):
        return "id"
    hint = re.findall(r"[a-z]+", slot.hint.lower())
    return next((_MARKS[w] for w in hint[:12] if w in _MARKS and w not in _VAGUE), "project")


_BRIEF = 120  # characters; a longer description speaks of more than the form of the value
# The form that a description states outranks the name: `from` is a person in a mail and a day in
# a search for news.
_STATED = {
    "date": re.compile(r"(?!output\b)[^;.]*\byyyy-mm-dd\b(?!\W*hh)", re.IGNORECASE),
    "uuid": re.compile(r"(?:[\w-]+ ){0,2}\(?[ug]uid\b", re.IGNORECASE),
    "sql": re.compile(r"(?:(?:a|an|the) )?(?:[a-z]+ )?sql (?:query|statement)\b", re.IGNORECASE),
    "country_code": re.compile(
        r"(?!.*\bwith\b)(?:[\w-]+ ){0,4}\(?(?:country code|iso[ -]?3166)", re.IGNORECASE
    ),
    "language_code": re.compile(
        r"(?!.*\bwith\b)(?:[\w-]+ ){0,4}\(?(?:language code|iso[ -]?639)", re.IGNORECASE
    ),
}


def _find_stated_sort(hint: str) -> str | None:
    return next((sort for sort, form in _STATED.items() if form.match(hint)), None)


_MATHS = re.compile(r"\b(?:math\w*|arithmetic|calculat\w+|sympy|algebra\w*|equations?)\b")
_CHAIN = re.compile(
    r"\b(?:wallets?|token|ethereum|eth|solana|bitcoin|btc|blockchain|on-?chain|erc-?\d+|nft|evm"
    r"|safe|contract|defi)\b"
)


_FOLDER = re.compile(r"^(?!.*\bfiles?\b).*\b(?:director(?:y|ies)|folders?)\b")


_PEOPLE = re.compile(
    r"\b(?:person|people|player|nationality|gender|age|author|contact|character|member|customer)\b"
)


# Words that nearly every description holds; they say nothing about the value.
_VAGUE = collect_words(
    "name to from user key value values type text field fields data item items file source to "
    "query search content target index tag status state time role q unit model words message "
    "hash problem error goal task instruction instructions step steps condition feature "
    "signature findings requirement requirements objective symptom tone hex mac"
)


def choose_themed_sort(slot: Slot, sort: str) -> str:
    """The sort that fits what the tool is about, or `sort` when it says nothing of the kind."""
    return _find_theme(slot.theme) or sort


@lru_cache(maxsize=4096)
def _find_theme(text: str) -> str | None:
    """The theme whose mark comes first in a text."""
    hits = {name: marks.search(text) for name, marks in _MARKED.items()}
    return min(((hit.start(), name) for name, hit in hits.items() if hit), default=(0, None))[1]


# What people search for, or name, depends on what the tool is about.
_MARKED = {
    name: re.compile(rf"\b(?:{'|'.join(marks)})\b") for name, marks in _TABLE["themes"].items()
}
