"""Shown: strangers' text inside our own pages, as text and nothing else.

What belongs here: Markdown that holds what a server sent. What does not: escaping for terminals and
logs (`scan/finding.py: escaped`, which every text passes first).

Each ASCII sign that is no letter, digit or blank becomes a numeric entity: no tag, link, image,
address or table cell can be written with what is left.
"""

from collections.abc import Iterable, Sequence

from assets.contracts.scan.finding import escaped

_CELL = 160


def cell(text: str, cap: int = _CELL) -> str:
    """One table cell."""
    return "".join(
        char if char.isalnum() or char == " " or not char.isascii() else f"&#{ord(char)};"
        for char in escaped(text)[:cap]
    )


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, or "none". `head` is ours, the lines anybody's."""
    rows = [f"| {' | '.join(map(cell, line))} |" for line in lines]
    if not rows:
        return "none"
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *rows])
