"""Tool names: what the specification does not allow, and what reads as more than a name."""

import re
from collections.abc import Iterator

from assets.contracts.scan.finding import HIGH, MEDIUM, Hit, build_hit
from warehouse.sanitize.unseen import normalise_breaks

_ALLOWED = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SENTENCE_END = re.compile(r"[.!?:;]\s+\S|[。！？]")
_LONGEST = 128
_MOST_WORDS = 7  # of 12,608 tools of real servers none has more than 5


def judge_tool_name(name: str) -> Iterator[Hit]:
    """One hit for a name outside [A-Za-z0-9_.-]{1,128} (MCP 2025-11-25): low for other characters,
    medium for a sentence or a long one, high for several lines. No name is no hit."""
    if not name or _ALLOWED.fullmatch(name):
        return
    whole = 0, len(name)
    if "\n" in normalise_breaks(name.strip()):
        why = "the name has several lines, as if we had written the later ones"
        yield build_hit("name_outside_spec", *whole, HIGH, why)
    elif len(name) > _LONGEST or len(name.split()) > _MOST_WORDS or _SENTENCE_END.search(name):
        why = "the name is long or reads as a sentence"
        yield build_hit("name_outside_spec", *whole, MEDIUM, why)
    else:
        yield build_hit("name_outside_spec", *whole)
