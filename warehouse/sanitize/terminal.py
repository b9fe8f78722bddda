"""Escapes third-party text, so that no terminal, log or page is attacked by what it shows."""

import unicodedata


def escape_text(text: str) -> str:
    """The text with everything that shows nothing, moves the cursor or reorders it as \\u{…}."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else f"\\u{{{ord(char):x}}}" for char in text)


def drop_surrogates(text: str) -> str:
    """The text with `?` for half of a surrogate pair, which no encoder, table or ledger takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _is_plain(char: str) -> bool:
    # Unassigned and private characters, all separators but the space, marks that stand on nothing.
    return char == " " or (
        char.isprintable() and unicodedata.category(char) not in ("Cf", "Cn", "Co", "Mn", "Me")
    )
