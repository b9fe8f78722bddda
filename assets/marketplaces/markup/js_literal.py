"""Jsobject: reads a JavaScript object literal as data; nothing is ever evaluated."""

import math
import re
from itertools import islice
from typing import Any

_BLANK = re.compile(r"[\s\ufeff]*")
_PLAIN = {quote: re.compile(rf"[^\\{quote}]+") for quote in "'\""} | {"`": re.compile(r"[^\\`$]+")}
_HEXED = re.compile(r"u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})")
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
    return _read_value(text, start, 0)


def find_object(text: str, anchor: str, having: str | None = None) -> dict[str, Any] | None:
    """The first object literal that is the value of the key `anchor`, and has the member `having`,
    or None."""
    key = re.compile(rf"(?:(?<=[{{,\s])|^)(?:{anchor}|'{anchor}'|\"{anchor}\")\s*:\s*")
    for found in islice(key.finditer(text), _ANCHORS):
        try:
            value, _ = read_literal(text, found.end())
        except NotALiteral:
            continue
        if isinstance(value, dict) and (having is None or having in value):
            return value
    return None


def read_all(text: str) -> Any:
    """The value of a text that is one literal and nothing else: JSON, with comments, trailing
    commas and bare keys allowed. Raises NotALiteral."""
    value, at = read_literal(text)
    if (at := _skip_blanks(text, at)) != len(text):
        raise NotALiteral(f"more text at {at}: {text[at : at + 20]!r}")
    return value


def _read_value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise NotALiteral(f"nested deeper than {_DEEPEST} levels at {at}")
    at = _skip_blanks(text, at)
    while assigned := _ASSIGN.match(text, at):  # $R[16]=
        at = assigned.end()
    char = text[at : at + 1]
    if char == "{":
        return _read_object(text, at + 1, depth)
    if char == "[":
        return _read_array(text, at + 1, depth)
    if char in ("'", '"', "`"):
        return _read_string(text, at)
    if date := _DATE.match(text, at):
        value, at = _read_value(text, date.end(), depth + 1)
        return value, _expect_char(text, at, ")")
    if text.startswith(("!0", "!1"), at):
        return text[at + 1] == "0", at + 2
    if text.startswith("void 0", at):
        return None, at + 6
    if number := _NUMBER.match(text, at):
        return _read_number(number[0]), number.end()
    if name := _NAME.match(text, at):
        return _WORDS.get(name[0]), name.end()
    raise NotALiteral(f"no literal at {at}: {text[at : at + 20]!r}")


def _read_object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    made: dict[str, Any] = {}
    while (at := _skip_blanks(text, at)) < len(text) and text[at] != "}":
        if text[at] in "'\"":
            key, at = _read_string(text, at)
        elif name := _NAME.match(text, at) or _NUMBER.match(text, at):
            key, at = name[0], name.end()
        else:
            raise NotALiteral(f"no key at {at}: {text[at : at + 20]!r}")
        made[key], at = _read_value(text, _expect_char(text, at, ":"), depth + 1)
        at = _skip_blanks(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "}":
            break
    return made, _expect_char(text, at, "}")


def _read_array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    made: list[Any] = []
    while (at := _skip_blanks(text, at)) < len(text) and text[at] != "]":
        value, at = _read_value(text, at, depth + 1)
        made.append(value)
        at = _skip_blanks(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            break
    return made, _expect_char(text, at, "]")


def _read_string(text: str, at: int) -> tuple[str, int]:
    quote, made = text[at], []
    at += 1
    while at < len(text):
        if plain := _PLAIN[quote].match(text, at):
            made.append(plain[0])
            at = plain.end()
            continue
        if text[at] == quote:
            return _join_parts(made), at + 1
        if text[at] == "$":
            if text.startswith("${", at):
                raise NotALiteral(f"a template with code at {at}")
            made.append("$")
            at += 1
            continue
        escaped = text[at + 1 : at + 2]
        if hexed := _HEXED.match(text, at + 1):
            code = int(next(group for group in hexed.groups() if group), 16)
            made.append(chr(code) if code <= 0x10FFFF else "\ufffd")
            at = hexed.end()
        else:
            made.append(_ESCAPES.get(escaped, escaped))
            at += 2
    raise NotALiteral("a text without end")


def _join_parts(parts: list[str]) -> str:
    """The characters as one text: escaped surrogate pairs become one character, and half of a
    pair becomes U+FFFD."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_number(text: str) -> int | float | None:
    """A number, or None where it is larger than any."""
    number = int(text) if re.fullmatch(r"[+-]?\d{1,15}", text) else float(text)
    return number if math.isfinite(number) else None


def _skip_blanks(text: str, at: int) -> int:
    """Where blanks and comments end; a comment that does not end is no blank."""
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at) and (end := text.find("*/", at + 2)) >= 0:
            at = end + 2
        else:
            return at


def _expect_char(text: str, at: int, char: str) -> int:
    at = _skip_blanks(text, at)
    if text[at : at + 1] != char:
        raise NotALiteral(f"expected {char!r} at {at}, found {text[at : at + 20]!r}")
    return at + 1
