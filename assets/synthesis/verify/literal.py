"""Finds values in a text literally: a path by its parts, a number in any spelling, no synonyms."""

import re
from typing import Any

from assets.synthesis.verify.grading import grade_value
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.words import STATED, fold_text

_DIGIT = re.compile(r"\d")
_LEAST = 3  # characters of a value that can be told from another


def is_telling(value: Any) -> bool:
    """Whether a value can be found again: no switch, and no short word."""
    if isinstance(value, bool) or value is None:
        return False
    return len(str(value).strip()) >= _LEAST


def is_stated(value: Any, path: str, request: RequestText) -> bool:
    """Whether the request holds a value, or the last part of one that is a path, with or without
    its ending. path: of the value in the arguments."""
    if isinstance(value, int | float):
        return grade_value(value, {}, path, request) == STATED
    last = value.rstrip("/").rpartition("/")[2]
    words = (fold_text(text).strip() for text in (value, last, last.rpartition(".")[0]))
    return any(len(word) >= _LEAST and _holds_name(request.folded, word) for word in words)


def is_asked(value: Any, path: str, request: RequestText, root: str) -> bool:
    """Whether the request states all of a value, however short: a path with where it lies, of a
    text that is composed (`C7:C7`, `id = 5`) every part. `root` itself needs no words."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        return is_stated(value, path, request)
    whole = fold_text(str(value)).strip()
    if whole in ("", ".") or whole.rstrip("/") == root or _holds_name(request.folded, whole):
        return True
    if "/" in whole and not re.search(r"\s", whole):
        last = whole.rstrip("/").rpartition("/")[2]
        is_named = is_stated(value, path, request) or _holds_name(request.folded, last)
        return is_named and is_placed(value, request, root)
    if is_stated(value, path, request):
        return True
    words = [
        word for word in re.findall(r"\w+", whole) if len(word) >= _LEAST or _DIGIT.search(word)
    ]
    return bool(words) and all(_holds_name(request.folded, part) for part in words)


def is_placed(value: Any, request: RequestText, root: str) -> bool:
    """Whether the request also names every folder of a path that it states, below `root`."""
    if not isinstance(value, str):
        return True
    whole = fold_text(value).strip()
    below = whole.removeprefix(f"{root}/")
    if _holds_name(request.folded, whole) or _holds_name(request.folded, below):
        return True
    folders = [part for part in below.rstrip("/").split("/")[:-1] if part not in ("", ".")]
    return all(_holds_name(request.folded, part, after="-_.") for part in folders)


def holds_value(value: Any, text_shown: str) -> bool:
    """Whether a case-folded text shows a value, or the last part of one that is a path, and not as
    a part of something longer: 100 is not in 1001."""
    text = str(value).strip().casefold()
    last = text.rstrip("/").rpartition("/")[2]
    words = [text, last]
    if isinstance(value, float) and value.is_integer():
        words.append(str(int(value)))  # JSON has one sort of number: 60.0 comes back as 60
    return any(len(word) >= _LEAST and _search(text_shown, word, "", "") for word in words)


def _holds_name(text: str, name: str, after: str = "-_./") -> bool:
    """Whether a text holds a name that does not go on: `note-1` is neither in `note-12.txt` nor in
    `note-1.csv`. after: what goes on with a name, where a letter or digit follows."""
    goes_on = rf"|[{re.escape(after)}][a-z0-9]"
    return _search(text, name, "(?<![a-z0-9][-_.])", goes_on)


def _search(text: str, word: str, before: str, goes_on: str) -> bool:
    """Letters of scripts that write no blanks end no word."""
    start = f"(?<![a-z0-9]){before}" if word[:1].isalnum() else ""
    end = f"(?![a-z0-9]{goes_on})" if word[-1:].isalnum() else ""
    return bool(word) and re.search(start + re.escape(word) + end, text) is not None
