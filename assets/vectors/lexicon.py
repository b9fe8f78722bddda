"""The offline generator's words: verbs by family, synonyms, contexts, pools of plausible values."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assets.contracts.repair.names import split_identifier as split_identifier

_PATH = Path(__file__).with_name("lexicon.json")
_IRREGULAR = {"does": "do", "goes": "go", "has": "have", "is": "be", "analyses": "analyse"}


def split_list(text: str) -> list[str]:
    """A word list written as text."""
    return text.split()


def collect_words(text: str) -> frozenset[str]:
    """The words of a list written as text."""
    return frozenset(text.split())


def stem_plural(word: str) -> str:
    """Singular and plural as one."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def join_words(words: Sequence[str]) -> str:
    """`a, b and c`; of one or more."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


@cache
def load_lexicon() -> dict[str, Any]:
    """The whole lexicon; read once."""
    return json.loads(_PATH.read_text(encoding="utf-8"))


def list_pool(name: str) -> list[str]:
    """Plausible values of one sort (city, title, branch …)."""
    return load_lexicon()["pools"][name]


@cache
def find_family(verb: str) -> str | None:
    """The family of a base-form verb (read, search, create …), or None."""
    return next((name for name, verbs in load_lexicon()["families"].items() if verb in verbs), None)


@cache
def find_base_form(word: str) -> str | None:
    """The base form of a verb in base, third person, or -ing form; None for other words."""
    word = word.lower()
    if word in _IRREGULAR:
        word = _IRREGULAR[word]
    guesses = [word]
    if word.endswith("ies"):
        guesses.append(word[:-3] + "y")
    if word.endswith("es"):
        guesses.append(word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        guesses.append(word[:-1])
    if word.endswith("ing") and len(word) > 5:
        stem = word[:-3]
        guesses += [stem, stem + "e", stem[:-1] if stem[-1:] == stem[-2:-1] else stem]
    return next((guess for guess in guesses if find_family(guess)), None)


@cache
def find_topic(text: str) -> str:
    """The field of work a text speaks of (code, files, web …), or `general`."""
    words = re.findall(r"[a-z]+", text.lower())
    scores = {
        topic: sum(word in marks for word in words)
        for topic, marks in load_lexicon()["topics"].items()
    }
    best = max(scores, key=lambda topic: scores[topic])
    return best if scores[best] else "general"
