"""Rules made of patterns, and what lowers or drops a single hit of theirs."""

from collections.abc import Iterator

from assets.contracts.scan.finding import LOW, MEDIUM, SEVERITIES, Hit, Rule, rank_severity
from assets.contracts.scan.text.phrases import Ideas, is_in_sentence, is_near, match_phrase

_QUOTES = "\"'`“”‘’«»「」"
_MENTION_REACH = 14
_GUARD_REACH = 14
_HITS_CAP = 3  # of one rule in one text, the gravest: more say nothing new


def judge_text(rule: Rule, text: str, within: Ideas) -> Iterator[Hit]:
    """The gravest hits of a rule's patterns in one text; overlapping ones once, the tightest."""
    hits = sorted(_judge_spans(rule, text, within), key=rank_severity, reverse=True)
    yield from sorted(hits[:_HITS_CAP], key=lambda hit: hit.start)


def _judge_spans(rule: Rule, text: str, within: Ideas) -> Iterator[Hit]:
    spans = sorted({span for pattern in rule.patterns for span in match_phrase(pattern, within)})
    for span in _find_tightest(spans):
        start, end = within.words.starts[span[0]], within.words.ends[span[1]]
        severity = rule.severity
        if rule.followed and is_near(
            rule.followed, within, (span[1], span[1]), 0, rule.followed_within
        ):
            severity = min(severity, MEDIUM, key=SEVERITIES.index)
        if rule.eased and is_near(rule.eased, within, span, 0, 1):
            severity = LOW
        if rule.guarded and is_in_sentence(rule.guarded, within, span[0], _GUARD_REACH):
            severity = min(severity, MEDIUM, key=SEVERITIES.index)
        if rule.mentioned and _find_mention(text, start, end, within, span):
            severity = rule.mentioned
        yield Hit(rule, start, end, severity)


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
    return is_in_sentence(("DETECTS",), within, span[0], reach)
