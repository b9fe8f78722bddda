"""One spelling for many: case, accents, width, quotes, separators and inflection out of the way."""

import unicodedata
from functools import lru_cache

_FLAT = str.maketrans("‘’“”–—−‐‑´`", "''\"\"-----''") | {
    ord("ı"): "i", ord("ł"): "l", ord("ß"): "ss", ord("ø"): "o", ord("đ"): "d", ord("æ"): "ae",
    **{ord(mark): None for mark in "\u200b\u200c\u200d\u2060\ufeff\u0640"},
}  # fmt: skip


def fold_text(text: str) -> str:
    """Case, width, accents, quotes and dashes out of the way."""
    if text.isascii():
        return text.lower().replace("`", "'")
    flat = unicodedata.normalize("NFKD", text).casefold()
    flat = "".join(char for char in flat if not unicodedata.combining(char))
    return flat.translate(_FLAT)


def fold_pattern(written: str) -> str:
    """A regular expression for folded text: its letters folded, its classes (`\\W`) left alone."""
    flat = unicodedata.normalize("NFKD", written)
    return "".join(char for char in flat if not unicodedata.combining(char))


def squeeze_text(text: str) -> str:
    """Letters and digits only: `/home/x y` and `home x-y` are the same."""
    return "".join(char for char in fold_text(text) if char.isalnum())


@lru_cache(maxsize=65_536)  # five small runs asked 272,000 times about 1,516 words
def stem_word(word: str) -> str:
    """A blunt stem: inflection at the end of longer words goes."""
    for ending in ("ing", "ies", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word
