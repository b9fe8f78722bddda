"""Ends swapped: the text goes from A to B, the call from B to A."""

import re
from collections.abc import Iterable

from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.grounding import Text, fold_text
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import JsonObject

_OUT = {"from", "source", "origin", "departure", "start", "src", "base", "depart"}
_IN = {"to", "target", "destination", "dest", "arrival", "end", "dst", "quote", "arrive"}


def find_reversed_ends(arguments: JsonObject, text: Text) -> Iterable[Finding]:
    """The ends of a call that the text has the other way round."""
    ends: dict[str, list[str | None]] = {}
    for name, value in list(arguments.items())[:60]:
        words = list(split_identifier(str(name)))
        for side, marks in enumerate((_OUT, _IN)):
            if marks & set(words) and isinstance(value, str) and 2 <= len(value) <= 60:
                rest = "_".join(word for word in words if word not in marks)
                ends.setdefault(rest, [None, None])[side] = value
    for out, into in ends.values():
        if out and into and _goes(into, out, text) and not _goes(out, into, text):
            reason = f"the text goes from {into[:40]!r} to {out[:40]!r}"
            yield Finding("ungrounded_value", "", reason, certain=False)


def _goes(start: str, end: str, text: Text) -> bool:
    """Whether the text says from `start` to `end`."""
    if fold_text(start) not in text.folded or fold_text(end) not in text.folded:
        return False
    words = r"\b(?:from|de|desde|da|von|aus|od|dari)\b[^.;?!]{0,30}?" + re.escape(fold_text(start))
    rest = r"\b[^.;?!]{0,30}?\b(?:to|into|a|para|nach|ke|vers)\b[^.;?!]{0,30}?" + re.escape(
        fold_text(end)
    )
    return re.search(rf"{words}{rest}\b", text.folded) is not None
