"""Escapes third-party text, so that no terminal, log or page is attacked by what it shows."""

import unicodedata


def escape_text(text: str) -> str:
    """The text with everything that shows nothing, moves the cursor or reorders it as \\u{…}."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else f"\\u{{{ord(char):x}}}" for char in text)


def _is_plain(char: str) -> bool:
    # Unassigned and private characters, all separators but the space, marks that stand on nothing.
    return char == " " or (
        char.isprintable() and unicodedata.category(char) not in ("Cf", "Cn", "Co", "Mn", "Me")
    )
