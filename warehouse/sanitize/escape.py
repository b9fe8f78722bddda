"""Third-party text as text and nothing else: on a terminal or in a log."""

import json
import unicodedata


def escape_text(text: str) -> str:
    """The text with everything that shows nothing, moves the cursor or reorders it as \\u{…}."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else f"\\u{{{ord(char):x}}}" for char in text)


def escape_lines(text: str) -> str:
    """A text of several lines of ours, each escaped."""
    return "\n".join(map(escape_text, text.split("\n")))


def escape_json(text: str) -> str:
    """The same JSON, in which what a terminal would obey or not show is written as \\uXXXX."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else json.dumps(char)[1:-1] for char in text)


def shorten_text(text: str, most: int, *, whole_words: bool = False) -> str:
    """The text, or as much of its beginning as fits into `most` characters with an ellipsis."""
    if len(text) <= most:
        return text
    kept = text[: max(0, most - 1)]
    if whole_words:
        kept = kept.rsplit(" ", 1)[0].rstrip(" ,;:-")
    return f"{kept.rstrip()}…"


def drop_surrogates(text: str) -> str:
    """The text with `?` for half of a surrogate pair, which no encoder, table or ledger takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _is_plain(char: str) -> bool:
    # Unassigned and private characters, all separators but the space, marks that stand on nothing.
    return char == " " or (
        char.isprintable() and unicodedata.category(char) not in ("Cf", "Cn", "Co", "Mn", "Me")
    )
