"""The offline judge: rules that score a pair by the rubric, and say that they are rules.

What belongs here: a score per criterion from what rules can see, with reasons.
What does not: asking a model (`judge.py`), the rules themselves (`verify.py`).
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from assets.synthesis.grounding import fold, leaves, stem
from assets.synthesis.lexicon import lexicon, words_in, words_of
from assets.synthesis.verify import verify

Json = Any
CRITERIA = ("clarity", "specificity", "relevance", "completeness", "correctness", "realism")
_HITS = {
    "missing_required_argument": "correctness", "unknown_argument": "correctness",
    "wrong_type": "correctness", "bad_value": "correctness", "bad_schema": "correctness",
    "ungrounded_value": "correctness", "missing_required_value": "completeness",
    "names_the_tool": "realism", "copies_description": "realism", "not_an_instruction": "clarity",
}  # fmt: skip
_LEFTOVER = re.compile(
    r"\{\w*\}|<[a-z_ ]+>|\[(?:your|insert)[^\]]*\]|\bundefined\b|\bNone\b|\bnull\b"
)


def rule_judgement(meta: Mapping[str, Json], seed: int) -> Json:
    """The judge's reply for meta {contract, instruction, arguments, server}: reasons, a score from
    1 to 10 per criterion, and the overall score."""
    contract, instruction = meta["contract"], str(meta["instruction"])
    scores: dict[str, int] = dict.fromkeys(CRITERIA, 9)
    reasons: list[str] = []
    verification = verify(contract, instruction, meta["arguments"], server=meta.get("server", ""))
    for finding in verification.findings:
        criterion = _HITS[finding.kind]
        scores[criterion] = min(scores[criterion], 2 if finding.certain else 5)
        reasons.append(f"{finding.kind} at {finding.path or 'the text'}: {finding.reason}")
    words = re.findall(r"\w+", fold(instruction))
    if len(words) < 2 or len(words) > 160:
        scores["clarity"] = min(scores["clarity"], 5)
        reasons.append(f"{len(words)} words")
    if _LEFTOVER.search(instruction):
        scores["realism"] = min(scores["realism"], 4)
        reasons.append("an unfilled placeholder is left in the text")
    if _repeats(words, meta["arguments"]):
        scores["clarity"] = min(scores["clarity"], 5)
        reasons.append("words repeat each other")
    if not _speaks_of(contract, instruction, meta["arguments"]):
        scores["relevance"] = min(scores["relevance"], 5)
        reasons.append("nothing in the text speaks of what the tool does")
    low = min(scores.values())
    overall = low if low < 6 else round(sum(scores.values()) / len(scores))
    said = "; ".join(reasons) or "no rule objects"
    return {"reasons": said, **scores, "score": overall}


def _repeats(words: list[str], arguments: Json) -> bool:
    held = {w for _, v in leaves(arguments, {}) for w in re.findall(r"\w+", fold(str(v)))}
    long = [word for word in words if len(word) > 3 and word not in held]
    doubled = any(a == b for a, b in pairwise(long))
    return doubled or (len(long) >= 8 and len(set(long)) < 0.5 * len(long))


def _speaks_of(contract: Mapping[str, Json], instruction: str, arguments: Json) -> bool:
    """Whether the request shares a content word (or a synonym) with the tool, values aside."""
    if sum(char.isascii() for char in instruction) < 0.9 * len(instruction):
        return True  # another script: rules have no say
    held = {stem(w) for _, v in leaves(arguments, {}) for w in re.findall(r"\w+", fold(str(v)))}
    said = {stem(word) for word in re.findall(r"\w{3,}", fold(instruction))} - held - _EMPTY
    text = f"{' '.join(words_of(str(contract.get('name'))))} {contract.get('description') or ''}"
    told = {stem(word) for word in re.findall(r"\w{3,}", fold(text))} - _EMPTY
    schema = contract.get("inputSchema") or {}
    for name in (schema.get("properties") or {}) if isinstance(schema, Mapping) else {}:
        told |= {stem(word) for word in words_of(name)}
    for idiom in lexicon()["idioms"]:
        if {stem(word) for word in idiom["when"]} <= told:
            asked = " ".join(idiom["say"]).lower()
            told |= {stem(word) for word in re.findall(r"\w{3,}", asked)} - _EMPTY
    return bool(said & told) or bool(_near(said) & told) or len(said) < 3


def _near(words: set[str]) -> set[str]:
    """Everything the lexicon holds for the same as one of the words."""
    found: set[str] = set()
    for table in ("verbs", "nouns"):
        for key, options in lexicon()[table].items():
            group = {
                stem(w) for text in (key, *options) for w in re.findall(r"\w{3,}", text.lower())
            }
            if group & words:
                found |= group
    return found - _EMPTY


_EMPTY = {
    stem(word)
    for word in words_in(
        "the and for with that this from all any can you your please what how have has are "
        "was were will would could should want need like get give tell show let make new "
        "one some into out about use using used just now not but also more than then them "
        "they their there here which who when where why been being does did doing its it's "
        "our ours mine his her him she look put"
    )
}
