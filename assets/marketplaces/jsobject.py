"""Jsobject: reads a JavaScript object literal as data; nothing is ever evaluated.

What belongs here: a small recursive-descent reader of literals as page streams write them
(`server:$R[16]={name:'x',updatedAt:$R[17]=new Date('2026-01-02')}`).
What does not: what the members mean (the adapters).
"""

import re
from itertools import islice
from typing import Any

_SPACE = re.compile(r"(?:\s|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_ASSIGN = re.compile(r"[$A-Za-z_][\w$]*(?:\[\d+\])?\s*=\s*(?!=)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)")
_NAME = re.compile(r"[$A-Za-z_][\w$]*(?:\[\d+\])?")
_DATE = re.compile(r"new\s+Date\(\s*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_DEEPEST = 60
_ANCHORS = 50  # a page that repeats its anchor more often is not read to the end


class NotALiteral(ValueError):
    """The text is not a literal this reader understands."""


def read_literal(text: str, start: int = 0) -> tuple[Any, int]:
    """(value, end) of the literal at `start`. `new Date(x)` reads as x, `void 0` as None, and a
    reference to another place of the stream as None. Raises NotALiteral with the position."""
    return _value(text, start, 0)


def find_object(text: str, anchor: str) -> dict[str, Any] | None:
    """The first object literal that is the value of the key `anchor`, or None."""
    key = re.compile(rf"(?:(?<=[{{,\s])|^)(?:{anchor}|'{anchor}'|\"{anchor}\")\s*:\s*")
    for found in islice(key.finditer(text), _ANCHORS):
        try:
            value, _ = read_literal(text, found.end())
        except NotALiteral:
            continue
        if isinstance(value, dict):
            return value
    return None


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise NotALiteral(f"nested deeper than {_DEEPEST} levels at {at}")
    at = _skip(text, at)
    while assigned := _ASSIGN.match(text, at):  # $R[16]=
        at = assigned.end()
    char = text[at : at + 1]
    if char == "{":
        return _object(text, at + 1, depth)
    if char == "[":
        return _array(text, at + 1, depth)
    if char in ("'", '"', "`"):
        return _string(text, at)
    if date := _DATE.match(text, at):
        value, at = _value(text, date.end(), depth + 1)
        return value, _expect(text, at, ")")
    if text.startswith(("!0", "!1"), at):
        return text[at + 1] == "0", at + 2
    if text.startswith("void 0", at):
        return None, at + 6
    if number := _NUMBER.match(text, at):
        return _number(number[0]), number.end()
    if name := _NAME.match(text, at):
        return _WORDS.get(name[0]), name.end()
    raise NotALiteral(f"no literal at {at}: {text[at : at + 20]!r}")


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    made: dict[str, Any] = {}
    while (at := _skip(text, at)) < len(text) and text[at] != "}":
        if text[at] in "'\"":
            key, at = _string(text, at)
        elif name := _NAME.match(text, at) or _NUMBER.match(text, at):
            key, at = name[0], name.end()
        else:
            raise NotALiteral(f"no key at {at}: {text[at : at + 20]!r}")
        made[key], at = _value(text, _expect(text, at, ":"), depth + 1)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "}":
            break
    return made, _expect(text, at, "}")


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    made: list[Any] = []
    while (at := _skip(text, at)) < len(text) and text[at] != "]":
        value, at = _value(text, at, depth + 1)
        made.append(value)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            break
    return made, _expect(text, at, "]")


def _string(text: str, at: int) -> tuple[str, int]:
    quote, made = text[at], []
    at += 1
    while at < len(text):
        char = text[at]
        if char == quote:
            return _joined(made), at + 1
        if quote == "`" and text.startswith("${", at):
            raise NotALiteral(f"a template with code at {at}")
        if char != "\\":
            made.append(char)
            at += 1
            continue
        escaped = text[at + 1 : at + 2]
        hexed = re.compile(r"u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})").match(
            text, at + 1
        )
        if hexed:
            code = int(next(group for group in hexed.groups() if group), 16)
            made.append(chr(code) if code <= 0x10FFFF else "\ufffd")
            at = hexed.end()
        else:
            made.append(_ESCAPES.get(escaped, escaped))
            at += 2
    raise NotALiteral("a text without end")


def _joined(parts: list[str]) -> str:
    """The characters as one text: escaped surrogate pairs become one character, and half of a
    pair becomes U+FFFD."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"[+-]?\d{1,15}", text) else float(text)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, char: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != char:
        raise NotALiteral(f"expected {char!r} at {at}, found {text[at : at + 20]!r}")
    return at + 1
