"""Injection: texts that give the model orders of their own, or hide something from the user."""

import re
from collections.abc import Iterator

from assets.contracts.scan.finding import HIGH, LOW, MEDIUM, Hit, build_hit, define_rule
from assets.contracts.scan.pattern_rules import Judged
from assets.contracts.scan.text.phrases import parse_patterns

_OWASP = "OWASP Top 10 for LLM applications 2025, LLM01"
_TPA = "Invariant Labs, tool poisoning attacks, April 2025"

OVERRIDE = define_rule(
    "instruction_override", HIGH, "override",
    "tells the model to drop the instructions it was given", _OWASP,
)  # fmt: skip
ROLE = define_rule(
    "role_change", HIGH, "override",
    "gives the model another role, task or mode", _OWASP,
)  # fmt: skip
CONCEAL = define_rule(
    "concealment", HIGH, "conceal",
    "tells the model to hide what it does from the user", _TPA,
)  # fmt: skip
HUSH = define_rule(
    "withholding", MEDIUM, "conceal",
    "tells the model not to show, ask or notify the user", _TPA,
)  # fmt: skip
ADDRESS = define_rule(
    "addresses_model", HIGH, "address",
    "speaks to the model as its operator, or claims a consent that nobody gave", _TPA,
)  # fmt: skip
NOTE = define_rule(
    "note_to_model", MEDIUM, "address",
    "speaks to the model apart from the user, or claims the user's consent", _TPA,
)  # fmt: skip
COERCION = define_rule(
    "coercion", MEDIUM, "coercion",
    "threatens, or takes the user's consent away, to get its order followed", _TPA,
)  # fmt: skip
TEMPLATE = define_rule(
    "chat_template", HIGH, "address",
    "holds control tokens of a chat template, which may end the tool's text for the model",
    "Greshake et al. 2023, indirect prompt injection; special token injection",
)  # fmt: skip
TAG = define_rule(
    "authority_tag", MEDIUM, "address",
    "wraps text in a tag that looks like the system's own", _TPA,
)  # fmt: skip
COMMENT = define_rule(
    "hidden_comment", MEDIUM, "unseen",
    "holds a comment that a rendered page would not show",
    "hidden HTML comments in prompts; Trail of Bits, MCP line jumping, 2025",
)  # fmt: skip
PADDING = define_rule(
    "out_of_view", MEDIUM, "unseen",
    "pushes text out of view behind much white space",
    "Trail of Bits and Invariant Labs, 2025: approval dialogues show the first lines",
)  # fmt: skip

JUDGED = (
    Judged(
        OVERRIDE,
        parse_patterns(
            "IGNORE 4 PRIOR 4 INSTRUCTION",
            "IGNORE 4 INSTRUCTION 3 PRIOR",
            "IGNORE 3 PRIOR_STRICT 3 INSTRUCTION_SOFT",
            "IGNORE 3 INSTRUCTION_SOFT 1 PRIOR_STRICT",
            "IGNORE 3 TOLD",
            "TOLD 6 IGNORE",
            "IGNORE 1 USER_WISH",
            "PRIOR 3 INSTRUCTION 6 IGNORE",
            "PRIOR_STRICT 1 INSTRUCTION_SOFT 2 IGNORE",
            "SUBVERT 3 OWN 3 INSTRUCTION",
            "THIS_OVERRIDES 2 PRIOR 3 INSTRUCTION",
            "INSTRUCTION|INSTRUCTION_SOFT 1 PRIOR_STRICT 2 IGNORE",
        ),
        mentioned=LOW,
        followed=("NEXT_FILTER",),
    ),
    Judged(ROLE, parse_patterns("ROLE"), mentioned=LOW),
    Judged(
        CONCEAL,
        parse_patterns("NEG 2 TELL 4 AUDIENCE", "CONCEALED", "NEG 1 TELL 1 STEP",
                 "NEG 2 AUDIENCE 3 TELL",
                 "AUDIENCE 2 NEG 1 TELL",
                 "NEG 3 AUDIENCE 2 LEARN", "AUDIENCE 2 NEG 1 LEARN", "TELL 2 NEG 3 AUDIENCE",
                 "TELL 1 NOTHING 3 AUDIENCE", "TELL~ 5 AUDIENCE 2 NEG_AFTER"),
        mentioned=LOW,
        eased=("PRIVATE_OBJECT",),
        followed=("UNTIL",),
        followed_within=10,
    ),
    Judged(
        HUSH,
        parse_patterns("NEG 1 NOTIFY 3 AUDIENCE", "REPLY 2 NEG 1 CONTAIN"),
        mentioned=LOW,
        eased=("PRIVATE_OBJECT",),
    ),
    Judged(ADDRESS, parse_patterns("SYSTEM_CLAIM"), mentioned=LOW),
    Judged(NOTE, parse_patterns("NOTE_CLAIM"), mentioned=LOW),
    Judged(COERCION, parse_patterns("COERCION"), mentioned=LOW),
)  # fmt: skip

_TEMPLATE = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|begin_of_text)\|?>"
    r"|\[/?INST\]|<</?SYS>>|</?(?:tool_description|function_results|tool_result)>"
    r"|\n\n(?:Human|Assistant|System): ",
)
_TAG = re.compile(
    r"[<\[{]{1,2}\s{0,4}/?(?:very[ _-]?important|important|system|instructions?|secret|hidden|admin"
    r"|critical|system[_ -](?:prompt|message|instructions?|override|notice)|override|internal"
    r"|priority"
    r"|hidden[_ -]instructions?|assistant|confidential|mandatory|sys|do[_ -]not[_ -]show)"
    r"\s{0,4}/?(?:[>\]}]{1,2}|:(?=[^{}]{1,400}\}\}))",
    re.IGNORECASE,
)
_BANNER = re.compile(
    r"(?:^|\n|(?<=[.!?:>] ))[ \t]{0,8}(?:#{1,4} ?|\*{2})?(?:SYSTEM(?: PROMPT| MESSAGE| OVERRIDE)?"
    r"|ADMIN|INSTRUCTIONS? (?:TO|FOR) (?:AI|LLM|ASSISTANT|THE ASSISTANT|THE MODEL))\*{0,2} ?:"
)
_COMMENT_TEXT = re.compile(r"(?<![^\W\d_])[^\W\d_]{2,}+(?:\W{1,3}[^\W\d_]{2,}+){2}")
_PADDING = re.compile(r"(?:\n[ \t]{0,200}){25}|[ \u00a0\u2000-\u200a\u3000\t]{120}")


def find_marks(text: str) -> Iterator[Hit]:
    """Tags, template tokens, comments and padding: hits that stand in signs, not in words."""
    for by, pattern in ((TEMPLATE, _TEMPLATE), (TAG, _TAG), (TAG, _BANNER)):
        found = pattern.search(text)
        if found:
            yield build_hit(by, found.start(), found.end())
    yield from _find_comments(text)
    found = _PADDING.search(text)
    if found and text[found.end() :].strip():
        yield build_hit(PADDING, found.start(), found.end())


def _find_comments(text: str) -> Iterator[Hit]:
    for opening, closing in (("<!--", "-->"), ("[//]: #", "\n"), ("[comment]: #", "\n")):
        start = text.find(opening)
        if start >= 0:
            end = text.find(closing, start)
            end = len(text) if end < 0 else end + len(closing)
            if _COMMENT_TEXT.search(text, start, min(end, start + 4_000)):
                yield build_hit(COMMENT, start, end)
