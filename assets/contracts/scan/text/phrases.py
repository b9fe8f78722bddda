"""Phrases: which ideas of the lexicon a text holds, and which of them stand in order and near.

A pattern reads "READ 8 HARDPATH|KEYISH 20 SEND": ideas in this order with at most so many words
between one and the next (the end of a sentence counts as some words). Time is linear in the text:
each idea's places are walked once per pattern, and no expression is ever tried twice on a place.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assets.contracts.scan.text.normalise import SENTENCE, Words, list_readings, split_words

_LEXICON = Path(__file__).with_name("lexicon.json")
_PHRASE_CAP = 40  # words of the longest phrase that is followed
_STEM_CAP = 24
IDEAS = " "  # the key of a trie node that holds what ends there; no word is a space

ABROAD = "~"  # "READ~" is READ in another language than English

Spans = list[tuple[int, int]]  # (first word, last word), by first word


@dataclass
class Ideas:
    """Where each idea stands in one text, and how many steps it took to find out."""

    words: Words
    found: dict[str, Spans] = field(default_factory=dict)
    steps: int = 0

    def spans(self, names: str) -> Spans:
        """The spans of "A" or of "A|B", by first word."""
        if "|" not in names:
            return self.found.get(names, [])
        return sorted(span for name in names.split("|") for span in self.found.get(name, []))


@cache
def build_trie() -> tuple[dict[str, Any], frozenset[str]]:
    """(the lexicon as a trie of words, all word stems that stand before a `*`)."""
    root: dict[str, Any] = {}
    stems: set[str] = set()
    for idea, languages in json.loads(_LEXICON.read_text(encoding="utf-8")).items():
        for language, phrase in (
            (name, phrase) for name in languages for phrase in languages[name]
        ):
            node = root
            for word in _split_parts(phrase):
                if word.endswith("*"):
                    stems.add(word[:-1])
                node = node.setdefault(word, {})
            node.setdefault(IDEAS, set()).add(idea)
            if language != "en":
                node[IDEAS].add(idea + ABROAD)
    return root, frozenset(stems)


def _split_parts(phrase: str) -> list[str]:
    out = []
    for piece in phrase.split():
        parts = split_words(piece.removesuffix("*")).words
        out += [*parts[:-1], parts[-1] + "*"] if piece.endswith("*") else parts
    return out


@cache
def _list_keys(word: str) -> tuple[str, ...]:
    """The trie's keys that a word may follow."""
    stems = build_trie()[1]
    keys: list[str] = []
    for reading in list_readings(word):
        keys.append(reading)
        keys += [
            reading[:size] + "*"
            for size in range(2, min(len(reading), _STEM_CAP) + 1)
            if reading[:size] in stems
        ]
    return tuple(dict.fromkeys(keys))


def find_ideas(found: Words) -> Ideas:
    """Every idea in a text."""
    root, _ = build_trie()
    out = Ideas(found)
    all_keys = [_list_keys(word) for word in found.words]
    for first, keys in enumerate(all_keys):
        nodes = [root[key] for key in keys if key in root]
        last = first
        while nodes:
            for node in nodes:
                for idea in node.get(IDEAS, ()):
                    spans = out.found.setdefault(idea, [])
                    if not spans or spans[-1] != (first, last):
                        spans.append((first, last))
            out.steps += len(nodes)
            last += 1
            if last == len(all_keys) or last - first == _PHRASE_CAP:
                break
            nodes = [node[key] for node in nodes for key in all_keys[last] if key in node]
    return out


@dataclass(frozen=True)
class Pattern:
    """Ideas in order, with the most words between each and the next."""

    ideas: tuple[str, ...]
    gaps: tuple[int, ...]


def parse_patterns(*texts: str) -> tuple[Pattern, ...]:
    """Patterns from their text form."""
    out = []
    for text in texts:
        parts = text.split()
        out.append(Pattern(tuple(parts[0::2]), tuple(int(gap) for gap in parts[1::2])))
    return tuple(out)


def match_phrase(pattern: Pattern, within: Ideas) -> Spans:
    """Every place where the pattern ends, each with the latest start that reaches it."""
    places = within.words.places
    reached: Spans = within.spans(pattern.ideas[0])
    for names, gap in zip(pattern.ideas[1:], pattern.gaps, strict=True):
        if not reached:
            return []
        reached = _advance_match(
            sorted(reached, key=lambda span: span[1]), within, names, gap, places
        )
    return reached


def _advance_match(reached: Spans, within: Ideas, names: str, gap: int, places: list[int]) -> Spans:
    """Of the spans of the next idea those that follow a reached one within the gap."""
    out: Spans = []
    at = 0
    start, end = -1, -1  # of the last reached span that ends before the next idea
    for first, last in within.spans(names):
        while at < len(reached) and reached[at][1] < first:
            start, end = reached[at]
            at += 1
        within.steps += 1
        if end >= 0 and places[first] - places[end] - 1 <= gap:
            out.append((start, last))
    within.steps += at
    return out


def is_near(
    names: Iterable[str], within: Ideas, span: tuple[int, int], before: int, after: int = 0
) -> bool:
    """Whether one of the ideas stands in the span, `before` words before or `after` words after."""
    places = within.words.places
    start, end = places[span[0]] - before, places[span[1]] + after
    return _has_any_within(names, within, start, end)


def is_in_sentence(names: Iterable[str], within: Ideas, word: int, reach: int) -> bool:
    """Whether one of the ideas stands before a word in its own sentence, at most `reach` away."""
    places = within.words.places
    first = word
    while first > 0 and places[first] - places[first - 1] <= SENTENCE and word - first < reach:
        first -= 1
    return _has_any_within(names, within, places[first], places[word])


def _has_any_within(names: Iterable[str], within: Ideas, start: int, end: int) -> bool:
    places = within.words.places
    return any(
        places[first] >= start and places[last] <= end
        for name in names
        for first, last in within.found.get(name, [])
    )
