"""Patterns over texts that a model wrote, as the standard library reads them, in bounded time."""

from functools import cache
from typing import Any

import regex

_SECONDS = 0.25


class CheckerHangs(Exception):
    """A pattern takes more than a quarter of a second of a processor, where texts of calls take
    microseconds: BFCL's checker would not come back."""


@cache
def _compile_pattern(pattern: str) -> Any:
    # The standard library counts \x1c to \x1f as white space; this engine does not.
    return regex.compile(pattern.replace(r"\s", r"[\s\x1c-\x1f]"))


def match(pattern: str, text: str) -> Any:
    return _run_limited(_compile_pattern(pattern).match, text)


def search(pattern: str, text: str) -> Any:
    return _run_limited(_compile_pattern(pattern).search, text)


def findall(pattern: str, text: str) -> list[Any]:
    return _run_limited(_compile_pattern(pattern).findall, text)


def fullmatch(pattern: str, text: str) -> Any:
    """From the start to the end; a line break may follow, as `$` allows."""
    return match(f"(?:{pattern})$", text)


def read_number(text: str) -> Any:
    """The integer, else the float, that Python reads in a text; else the text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _run_limited(find: Any, text: str) -> Any:
    try:
        return find(text, timeout=_SECONDS)
    except TimeoutError:
        raise CheckerHangs from None
