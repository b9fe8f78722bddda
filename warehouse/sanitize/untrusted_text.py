"""Third-party text as text and nothing else: on a terminal or in a log."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import regex


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
    start = text[: max(0, most - 1)]
    if whole_words:
        start = start.rsplit(" ", 1)[0].rstrip(" ,;:-")
    return f"{start.rstrip()}…"


def drop_surrogates(text: str) -> str:
    """The text with `?` for half of a surrogate pair, which no encoder, table or ledger takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _is_plain(char: str) -> bool:
    # Unassigned and private characters, all separators but the space, marks that stand on nothing.
    return char == " " or (
        char.isprintable() and unicodedata.category(char) not in ("Cf", "Cn", "Co", "Mn", "Me")
    )


# Format, control, private, surrogate and unassigned characters, and what Unicode lets a font leave
# out (variation selectors, fillers, joiners); a space or a line break is none of them.
_UNSEEN = regex.compile(
    r"(?V1)[[\p{C}\p{Default_Ignorable_Code_Point}]--[\t\n\x0b-\r\x1c-\x1f\x85]]+"
)
_PARTED = regex.compile(rf"(?a)(?<=[\w.:=~\-]){_UNSEEN.pattern}(?=[\w.:=~\-])")
_UNSEEN_ASCII = re.compile("[\x00-\x08\x0e-\x1b\x7f]+")
_BREAK = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")


def drop_unseen(text: str) -> str:
    """The text as it reads: without unseen characters, its line breaks as they were."""
    return text if _is_seen(text) else _UNSEEN.sub("", text)


def is_parted(text: str) -> bool:
    """Whether unseen characters stand within a word of ASCII."""
    return not _is_seen(text) and _PARTED.search(text) is not None


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
    visible, offsets, at = [], [], 0
    for gone in _UNSEEN.finditer(text):
        visible.append(text[at : gone.start()])
        offsets += range(at, gone.start())
        at = gone.end()
    visible.append(text[at:])
    offsets += range(at, len(text))
    return "".join(visible), offsets


def _is_seen(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not _UNSEEN_ASCII.search(text))


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
    escaped = escape_name(text, most)
    return escaped if _PLAIN.fullmatch(escaped) else f"«{escaped}»"


def read_name(quoted: str) -> str:
    """The name or id that a model or client was shown, as it hands it back."""
    bare = quoted[1:-1] if quoted[:1] == "«" and quoted[-1:] == "»" else quoted
    return _WRITTEN.sub(lambda code: _read_code(code[1], code[0]), bare)


def _write_code(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"


def _read_code(digits: str, written: str) -> str:
    number = int(digits, 16)
    return chr(number) if number <= 0x10FFFF else written


def rebuild(value: Any, copy: Callable[[Any, str], Any]) -> Any:
    """A copy of a nested value. `copy(item, under)` gives each item's own copy, its members as they
    were; `under` is the key that it, or the list that holds it, stands at."""
    root = [value]
    todo: list[tuple[Any, Any, str]] = [(root, 0, "")]
    while todo:
        holder, place, under = todo.pop()
        holder[place] = new = copy(holder[place], under)
        if isinstance(new, dict):
            todo += [(new, key, str(key)) for key in new]
        elif isinstance(new, list):
            todo += [(new, at, under) for at in range(len(new))]
    return root[0]


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of a nested value with every text and key changed."""

    def copy(item: Any, _under: str) -> Any:
        if isinstance(item, str):
            return change(item)
        if isinstance(item, dict):
            return {change(key): member for key, member in item.items()}
        return list(item) if isinstance(item, list) else item

    return rebuild(value, copy)


def find_repeated_name(pairs: Iterable[tuple[str, Any]]) -> str | None:
    """The first name that occurs again among an object's pairs; None where none does. One pass:
    counting each name took 7 to 11 s on 0.21 MB of names, beside every other caller."""
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            return name
        names.add(name)
    return None


# One sign of Chinese, Japanese or Korean is a word here, as no space parts them.
_FOLDED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+?(?=[\u3040-\u9fff]|\b|_)")


def fold_words(text: str) -> list[str]:
    """The words of a text as two texts are compared: NFKC, case folded, without punctuation."""
    return _FOLDED.findall(unicodedata.normalize("NFKC", text).casefold())
