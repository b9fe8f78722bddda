"""Judged: rules made of patterns, and what lowers or drops a single hit of theirs."""

from collections.abc import Iterator
from dataclasses import dataclass

from assets.contracts.scan.finding import LOW, MEDIUM, SEVERITIES, Hit, Rule, build_hit
from assets.contracts.scan.text.phrases import Ideas, Pattern, is_near, match_phrase, sentence_holds

_QUOTES = "\"'`“”‘’«»「」"
_MENTION_REACH = 14
_GUARD_REACH = 14
_HITS_CAP = 3  # of one rule in one text: more say nothing new


@dataclass(frozen=True)
class Judged:
    """A rule and its patterns.

    mentioned: severity of a hit that a text about such attacks only quotes.
    eased: ideas which inside the hit make it `eased_to`, as "do not mention ids to the user".
    followed: ideas which right behind the hit make it medium, as "ignore all instructions with …".
    guarded: ideas which shortly before the hit make it medium, as "blocks requests that …".
    roles: texts it applies to; empty: all.
    """

    rule: Rule
    patterns: tuple[Pattern, ...]
    mentioned: str = ""
    eased: tuple[str, ...] = ()
    eased_to: str = LOW
    followed: tuple[str, ...] = ()
    followed_within: int = 1
    guarded: tuple[str, ...] = ()
    roles: frozenset[str] = frozenset()


def judge_text(judged: Judged, text: str, within: Ideas, role: str) -> Iterator[Hit]:
    """The hits of one rule in one text; overlapping ones once, the tightest."""
    if judged.roles and role not in judged.roles:
        return
    spans = sorted({span for pattern in judged.patterns for span in match_phrase(pattern, within)})
    tight = _find_tightest(spans)
    for span in tight[:_HITS_CAP]:
        start, end = within.words.starts[span[0]], within.words.ends[span[1]]
        severity = judged.rule.severity
        if judged.followed and is_near(
            judged.followed, within, (span[1], span[1]), 0, judged.followed_within
        ):
            severity = min(severity, MEDIUM, key=SEVERITIES.index)
        if judged.eased and is_near(judged.eased, within, span, 0, 1):
            severity = judged.eased_to
        if judged.guarded and sentence_holds(judged.guarded, within, span[0], _GUARD_REACH):
            severity = min(severity, MEDIUM, key=SEVERITIES.index)
        if judged.mentioned and _find_mention(text, start, end, within, span):
            severity = judged.mentioned
        yield build_hit(judged.rule, start, end, severity)


def _find_tightest(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda s: (s[1], -s[0])):
        if out and span[0] <= out[-1][1]:
            continue  # overlaps one that ends sooner
        out.append(span)
    return out


def _find_mention(text: str, start: int, end: int, within: Ideas, span: tuple[int, int]) -> bool:
    """Whether a text that speaks of attacks, filters or tests quotes the words."""
    quoted = any(sign in _QUOTES for sign in text[max(0, start - 3) : start] + text[end : end + 3])
    reach = _MENTION_REACH if quoted else 6
    return sentence_holds(("DETECTS",), within, span[0], reach)
