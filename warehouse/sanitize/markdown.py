"""Markdown tables and third-party text inside our own pages, as text and nothing else."""

from collections.abc import Callable, Iterable, Sequence

from warehouse.sanitize.terminal import escape_text

_CELL = 160
_JOINER = "&#8288;"
_ADDRESS = frozenset("/@.")


def escape_cell(text: object, cap: int = _CELL) -> str:
    """One cell of untrusted text, cut to `cap` characters.

    Each ASCII sign that is no letter, digit or blank becomes a numeric entity: no tag, link, image
    or table cell can be written with what is left. The UI makes links of bare addresses after it
    has read the entities, so an invisible joiner stands before the signs that make an address.
    """
    return "".join(map(_escape_sign, escape_text(str(text))[:cap]))


def keep_cell(value: object) -> str:
    """One cell of our own Markdown: only bars and line breaks, which would end it, are changed."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


def markdown_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    cell: Callable[..., str] = escape_cell,
    empty: str = "none",
) -> str:
    """A Markdown table, or `empty` without rows. The header is ours; `cell` writes the rest."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if not lines:
        return empty
    return "\n".join([f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}", *lines])


def _escape_sign(char: str) -> str:
    if char.isalnum() or char == " " or not char.isascii():
        return char
    return f"{_JOINER if char in _ADDRESS else ''}&#{ord(char)};"
