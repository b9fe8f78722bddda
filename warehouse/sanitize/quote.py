"""Third-party words in a model's prompt: what is quoted stands between « and », and stays there.

Names, keys and allowed values are escaped rather than cleaned, so that two different ones never
become one. A name that is one plain word stands as it is; any other is quoted like prose, since a
name of several words could say what we say beside it: another hit, an order, the end of a list.
"""

import re

from warehouse.sanitize.unseen import is_seen

_PLAIN = re.compile(r"[\w.:/@%~+=&?#$-]+", re.ASCII)
_MARKS = "«»\\"
_WRITTEN = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def quote_text(text: str) -> str:
    """A short text between « and », which it cannot close itself."""
    return f"«{text.replace('«', '‹').replace('»', '›')}»"


def escape_exact(text: str, most: int, keep: str = "") -> str:
    """A key or value: what shows nothing is written out as \\u{…}."""
    cut = text[:most] + ("…" if len(text) > most else "")
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(c if c in keep or is_seen(c) else _write_code(c) for c in cut)


def escape_name(text: str, most: int) -> str:
    """A name or id in one line that `read_name` reads back: marks, \\ and a blank at an end, which
    is easily lost, are written out too."""
    cut = text[:most] + ("…" if len(text) > most else "")
    if _PLAIN.fullmatch(cut):
        return cut
    begin, end = len(cut) - len(cut.lstrip()), len(cut.rstrip())
    return "".join(
        c if is_seen(c) and c not in _MARKS and begin <= at < end else _write_code(c)
        for at, c in enumerate(cut)
    )


def quote_name(text: str, most: int) -> str:
    """A name or id for a line of ours: bare where it is one plain word, else between marks."""
    shown = escape_name(text, most)
    return shown if _PLAIN.fullmatch(shown) else f"«{shown}»"


def read_name(shown: str) -> str:
    """The name or id that a model or client was shown, as it hands it back."""
    bare = shown[1:-1] if shown[:1] == "«" and shown[-1:] == "»" else shown
    return _WRITTEN.sub(lambda code: _read_code(code[1], code[0]), bare)


def _write_code(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"


def _read_code(digits: str, written: str) -> str:
    number = int(digits, 16)
    return chr(number) if number <= 0x10FFFF else written
