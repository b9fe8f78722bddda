"""Shown: strangers' text inside our own pages, as text and nothing else.

Each ASCII sign that is no letter, digit or blank becomes a numeric entity: no tag, link, image or
table cell can be written with what is left. The UI makes links of bare addresses after it has read
the entities, so an invisible joiner stands before the signs that make an address.
"""

from collections.abc import Iterable, Sequence

from warehouse.sanitize.terminal import escape_text

_CELL = 160
_JOINER = "&#8288;"
_ADDRESS = frozenset("/@.")


def cell(text: str, cap: int = _CELL) -> str:
    """One table cell."""
    return "".join(map(_sign, escape_text(text)[:cap]))


def _sign(char: str) -> str:
    if char.isalnum() or char == " " or not char.isascii():
        return char
    return f"{_JOINER if char in _ADDRESS else ''}&#{ord(char)};"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, or "none". `head` is ours, the lines anybody's."""
    rows = [f"| {' | '.join(map(cell, line))} |" for line in lines]
    if not rows:
        return "none"
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *rows])
