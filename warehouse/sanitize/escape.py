"""Third-party text as text and nothing else: on a terminal, in a log, in a Markdown page."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence

_CELL = 160
_JOINER = "&#8288;"
_ADDRESS = frozenset("/@.")


def escape_text(text: str) -> str:
    """The text with everything that shows nothing, moves the cursor or reorders it as \\u{…}."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else f"\\u{{{ord(char):x}}}" for char in text)


def drop_surrogates(text: str) -> str:
    """The text with `?` for half of a surrogate pair, which no encoder, table or ledger takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


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


def make_markdown_table(
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


def _is_plain(char: str) -> bool:
    # Unassigned and private characters, all separators but the space, marks that stand on nothing.
    return char == " " or (
        char.isprintable() and unicodedata.category(char) not in ("Cf", "Cn", "Co", "Mn", "Me")
    )
