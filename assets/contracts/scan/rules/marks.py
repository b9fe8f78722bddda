"""Marks: tags, template tokens, comments and padding, which stand in signs and not in words."""

import re
from collections.abc import Iterator

from assets.contracts.scan.finding import Hit, build_hit

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
    """All hits of a text."""
    for rule, pattern in (
        ("chat_template", _TEMPLATE),
        ("authority_tag", _TAG),
        ("authority_tag", _BANNER),
    ):
        found = pattern.search(text)
        if found:
            yield build_hit(rule, *found.span())
    yield from _find_comments(text)
    found = _PADDING.search(text)
    if found and text[found.end() :].strip():
        yield build_hit("out_of_view", *found.span())


def _find_comments(text: str) -> Iterator[Hit]:
    for opening, closing in (("<!--", "-->"), ("[//]: #", "\n"), ("[comment]: #", "\n")):
        start = text.find(opening)
        if start >= 0:
            end = text.find(closing, start)
            end = len(text) if end < 0 else end + len(closing)
            if _COMMENT_TEXT.search(text, start, min(end, start + 4_000)):
                yield build_hit("hidden_comment", start, end)
