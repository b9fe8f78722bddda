"""Rules of the scan: what each looks for, how its patterns match, and what a hit says.

A pattern reads "READ 8 HARDPATH|KEYISH 20 SEND": ideas in this order with at most so many words
between one and the next (the end of a sentence counts as some words). Time is linear in the text:
each idea's places are walked once per pattern. Excerpts are escaped, so that no terminal, log or
page is attacked by what it shows.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assets.contracts.scan.tool_texts import SENTENCE, WordList, list_readings, split_words
from warehouse.sanitize.untrusted_text import escape_text

_LEXICON = Path(__file__).with_name("lexicon.json")
_PHRASE_CAP = 40  # words of the longest phrase that is followed
_STEM_CAP = 24
IDEAS = " "  # the key of a trie node that holds what ends there; no word is a space

ABROAD = "~"  # "READ~" is READ in another language than English

Spans = list[tuple[int, int]]  # (first word, last word), by first word


@dataclass
class IdeaSpans:
    """Where each idea stands in one text, and how many steps it took to find out."""

    words: WordList
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
            words: list[str] = []
            for piece in phrase.split():
                tokens = split_words(piece.removesuffix("*")).words
                words += [*tokens[:-1], f"{tokens[-1]}*"] if piece.endswith("*") else tokens
            for word in words:
                if word.endswith("*"):
                    stems.add(word[:-1])
                node = node.setdefault(word, {})
            node.setdefault(IDEAS, set()).add(idea)
            if language != "en":
                node[IDEAS].add(idea + ABROAD)
    return root, frozenset(stems)


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


def find_ideas(words: WordList) -> IdeaSpans:
    """Every idea in a text."""
    root, _ = build_trie()
    out = IdeaSpans(words)
    all_keys = [_list_keys(word) for word in words.words]
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
class IdeaPattern:
    """Ideas in order, with the most words between each and the next."""

    ideas: tuple[str, ...]
    gaps: tuple[int, ...]


def parse_patterns(*texts: str) -> tuple[IdeaPattern, ...]:
    """Patterns from their text form."""
    out = []
    for text in texts:
        tokens = text.split()
        out.append(IdeaPattern(tuple(tokens[0::2]), tuple(int(gap) for gap in tokens[1::2])))
    return tuple(out)


def match_phrase(pattern: IdeaPattern, within: IdeaSpans) -> Spans:
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


def _advance_match(
    reached: Spans, within: IdeaSpans, names: str, gap: int, places: list[int]
) -> Spans:
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
    names: Iterable[str], within: IdeaSpans, span: tuple[int, int], before: int, after: int = 0
) -> bool:
    """Whether one of the ideas stands in the span, `before` words before or `after` words after."""
    places = within.words.places
    start, end = places[span[0]] - before, places[span[1]] + after
    return _has_any_within(names, within, start, end)


def is_in_sentence(names: Iterable[str], within: IdeaSpans, word: int, reach: int) -> bool:
    """Whether one of the ideas stands before a word in its own sentence, at most `reach` away."""
    places = within.words.places
    first = word
    while first > 0 and places[first] - places[first - 1] <= SENTENCE and word - first < reach:
        first -= 1
    return _has_any_within(names, within, places[first], places[word])


def _has_any_within(names: Iterable[str], within: IdeaSpans, start: int, end: int) -> bool:
    places = within.words.places
    return any(
        places[first] >= start and places[last] <= end
        for name in names
        for first, last in within.found.get(name, [])
    )


LOW, MEDIUM, HIGH = "low", "medium", "high"
SEVERITIES = (LOW, MEDIUM, HIGH)
EXCERPT_CAP = 160  # characters before escaping
NAME_CAP = 200
_AROUND = 24


@dataclass(frozen=True)
class ScanRule:
    """One rule; `rules.toml` holds them all and says what each field means."""

    id: str
    severity: str
    family: str
    why: str
    source: str
    patterns: tuple[IdeaPattern, ...] = ()
    mentioned: str = ""
    eased: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    followed_within: int = 1
    guarded: tuple[str, ...] = ()
    asks: tuple[IdeaPattern, ...] = ()
    names: tuple[str, ...] = ()
    subject: frozenset[str] = frozenset()
    in_results: str = ""


@dataclass(frozen=True)
class ScanFinding:
    """One hit. `field` is a JSON pointer into the tool; one that ends in `#` means the name of the
    member itself. `span` counts characters of that text, end exclusive."""

    tool: str
    rule: str
    severity: str
    field: str
    span: tuple[int, int]
    excerpt: str
    why: str

    def as_row(self) -> dict[str, Any]:
        return {**asdict(self), "span": list(self.span)}


def _read_rules() -> dict[str, ScanRule]:
    text = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
    out = {}
    for name, stated in tomllib.loads(text).items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stated.items()
        }
        fields |= {
            key: parse_patterns(*fields[key]) for key in ("patterns", "asks") & fields.keys()
        }
        fields["subject"] = frozenset(fields.get("subject", "").split())
        out[name] = ScanRule(name, **fields)
    return out


RULES = _read_rules()


@dataclass(frozen=True)
class RuleHit:
    """A rule's hit within one text, before it is known whose text it is."""

    rule: ScanRule
    start: int
    end: int
    severity: str
    why: str = ""


def rank_severity(hit: RuleHit | ScanFinding) -> int:
    """A key that grows with the severity."""
    return SEVERITIES.index(hit.severity)


def keep_gravest(hits: Iterable[RuleHit]) -> list[RuleHit]:
    """The gravest of the hits of one rule, the first of equals; [] for none."""
    return [best] if (best := max(hits, key=rank_severity, default=None)) else []


def build_hit(rule: str, start: int, end: int, severity: str = "", why: str = "") -> RuleHit:
    """A hit of the rule of that id, of its usual severity unless another is given."""
    return RuleHit(RULES[rule], start, end, severity or RULES[rule].severity, why)


def build_finding(tool: str, field: str, text: str, hit: RuleHit) -> ScanFinding:
    """The finding of a hit, with an excerpt of the text around it."""
    head = max(0, hit.start - _AROUND)
    tail = min(len(text), hit.end + _AROUND, head + EXCERPT_CAP)
    before, after = "…" if head else "", "…" if tail < len(text) else ""
    return ScanFinding(
        tool=escape_text(tool[:NAME_CAP]),
        rule=hit.rule.id,
        severity=hit.severity,
        field=escape_text(field),
        span=(hit.start, hit.end),
        excerpt=f"{before}{escape_text(text[head:tail])}{after}",
        why=hit.why or hit.rule.why,
    )


_QUOTES = "\"'`“”‘’«»「」"
_MENTION_REACH = 14
_GUARD_REACH = 14
_HITS_CAP = 3  # of one rule in one text, the gravest: more say nothing new


def judge_text(rule: ScanRule, text: str, within: IdeaSpans) -> Iterator[RuleHit]:
    """The gravest hits of a rule's patterns in one text; overlapping ones once, the tightest."""
    hits = sorted(_judge_spans(rule, text, within), key=rank_severity, reverse=True)
    yield from sorted(hits[:_HITS_CAP], key=lambda hit: hit.start)


def _judge_spans(rule: ScanRule, text: str, within: IdeaSpans) -> Iterator[RuleHit]:
    spans = {span for pattern in rule.patterns for span in match_phrase(pattern, within)}
    reached = -1  # the last word of the span before: one that overlaps it ends later
    for first, last in sorted(spans, key=lambda span: (span[1], -span[0])):
        if first <= reached:
            continue
        reached = last
        start, end = within.words.starts[first], within.words.ends[last]
        severity = rule.severity
        followed = rule.followed and is_near(
            rule.followed, within, (last, last), 0, rule.followed_within
        )
        guarded = rule.guarded and is_in_sentence(rule.guarded, within, first, _GUARD_REACH)
        if rule.eased and is_near(rule.eased, within, (first, last), 0, 1):
            severity = LOW
        elif followed or guarded:
            severity = min(severity, MEDIUM, key=SEVERITIES.index)
        # A text that speaks of attacks, filters or tests quotes the words.
        around = text[max(0, start - 3) : start] + text[end : end + 3]
        reach = _MENTION_REACH if any(sign in _QUOTES for sign in around) else 6
        if rule.mentioned and is_in_sentence(("DETECTS",), within, first, reach):
            severity = rule.mentioned
        yield RuleHit(rule, start, end, severity)
