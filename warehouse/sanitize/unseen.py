"""Unseen: the one definition of characters that no renderer shows, and texts without them.

Whatever a check reads and whatever a renderer shows goes through here: a character that a renderer
dropped and a check did not would put a key or an order together behind the check.
"""

import re

import regex

# Format, control, private, surrogate and unassigned characters, and what Unicode lets a font leave
# out (variation selectors, fillers, joiners); a space or a line break is none of them.
_UNSEEN = regex.compile(
    r"(?V1)[[\p{C}\p{Default_Ignorable_Code_Point}]--[\t\n\x0b-\r\x1c-\x1f\x85]]+"
)
_UNSEEN_ASCII = re.compile("[\x00-\x08\x0e-\x1b\x7f]+")
_BREAK = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")


def drop_unseen(text: str) -> str:
    """The text as it reads: without unseen characters, its line breaks as they were."""
    return text if _is_seen(text) else _UNSEEN.sub("", text)


def normalise_breaks(text: str) -> str:
    """The text with a newline for each kind of line break, U+2028 and its like included."""
    return text if text.isascii() and text.isprintable() else _BREAK.sub("\n", text)


def is_seen(char: str) -> bool:
    """Whether a character shows, a space included; a line break or tab does not."""
    return char.isprintable() if char.isascii() else not (_BREAK.match(char) or _UNSEEN.match(char))


def find_seen(text: str) -> tuple[str, list[int]]:
    """(the text without unseen characters, where each kept one stood; [] when none was taken)."""
    if _is_seen(text) or not _UNSEEN.search(text):
        return text, []
    kept, offsets, at = [], [], 0
    for gone in _UNSEEN.finditer(text):
        kept.append(text[at : gone.start()])
        offsets += range(at, gone.start())
        at = gone.end()
    kept.append(text[at:])
    offsets += range(at, len(text))
    return "".join(kept), offsets


def _is_seen(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not _UNSEEN_ASCII.search(text))
