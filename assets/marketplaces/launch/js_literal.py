"""Jsobject: reads a JavaScript object literal as data; nothing is ever evaluated.

The literal's tokens are written as JSON, which the standard library's reader takes or refuses.
"""

import json
import math
import re
from bisect import bisect_right
from itertools import accumulate, islice
from typing import Any

_NUMBER = r"[+-]?(?:\d++\.?\d*+(?:[eE][+-]?\d++)?|\.\d++)"
_NAME = r"[$A-Za-z_][\w$]*+(?:\[\d++\])?"
# Between a key and its colon; bounded, because it is looked ahead for at each name.
_GAP = r"(?:\s++|//[^\n]{0,400}+\n|/\*(?:[^*]|\*(?!/)){0,400}+\*/){0,8}+"
_TOKEN = re.compile(
    # Blanks, comments, and what a stream assigns a value to: `$R[16]=`.
    rf"(?P<blank>[\s\ufeff]++|//[^\n]*+|/\*.*?\*/|{_NAME}\s*+=(?!=))"
    rf"|(?P<date>new\s+Date\()|(?P<key>(?:{_NAME}|{_NUMBER})(?={_GAP}:))"
    r"|(?P<string>'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\"|`(?:[^`\\$]++|\\.|\$(?!\{))*+`)"
    rf"|(?P<number>{_NUMBER})|(?P<name>![01]|void 0|{_NAME})|(?P<sign>[{{}}\[\](),:])",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_WORDS = {"true": True, "false": False, "!0": True, "!1": False}  # any other name is nothing
_CLOSES = {"{": "}", "[": "]"}
_DEEPEST = 60
_MOST_TOKENS = 1_000_000  # of one literal: some 150 MB while it is read
_ANCHORS = 50  # a page that repeats its anchor more often is not read to the end


class NotALiteral(ValueError):
    """The text is not a literal this reader understands."""


def read_literal(text: str, start: int = 0) -> tuple[Any, int]:
    """(value, end) of the literal at `start`. `new Date(x)` reads as x, `void 0` as None, and a
    reference to another place of the stream as None. Raises NotALiteral with the position."""
    at, open_, pieces, places = start, list[str](), list[str](), list[int]()
    while token := _TOKEN.match(text, at):
        kind, word, place, at = token.lastgroup, token[0], at, token.end()
        if kind == "blank":
            continue
        if kind == "date" or word in _CLOSES:
            open_.append(_CLOSES.get(word, ")"))
            if len(open_) > _DEEPEST:
                raise NotALiteral(f"nested deeper than {_DEEPEST} levels at {place}")
        elif kind == "sign" and word in ")]}":
            if not open_ or open_.pop() != word:
                raise _make_error(text, place)
            if pieces[-1:] == [", "]:
                pieces.pop()
                places.pop()
        if len(pieces) == _MOST_TOKENS:
            raise NotALiteral(f"more than {_MOST_TOKENS:,} tokens at {place}")
        pieces.append(f"{_write_json(str(kind), word)} ")
        places.append(place)
        if not open_:
            try:
                return json.loads("".join(pieces)), at
            except json.JSONDecodeError as error:
                number = bisect_right(list(accumulate(map(len, pieces))), error.pos)
                raise _make_error(text, places[min(number, len(places) - 1)]) from None
    raise _make_error(text, at)


def find_object(text: str, anchor: str, having: str | None = None) -> dict[str, Any] | None:
    """The first object literal that is the value of the key `anchor`, and has the member `having`,
    or None."""
    key = re.compile(rf"(?:(?<=[{{,\s])|^)(?:{anchor}|'{anchor}'|\"{anchor}\")\s*:\s*")
    for match in islice(key.finditer(text), _ANCHORS):
        try:
            value, _ = read_literal(text, match.end())
        except NotALiteral:
            continue
        if isinstance(value, dict) and (having is None or having in value):
            return value
    return None


def read_all(text: str) -> Any:
    """The value of a text that is one literal and nothing else: JSON, with comments, trailing
    commas and bare keys allowed. Raises NotALiteral."""
    value, at = read_literal(text)
    while (blank := _TOKEN.match(text, at)) and blank.lastgroup == "blank":
        at = blank.end()
    if at != len(text):
        raise NotALiteral(f"more text at {at}: {text[at : at + 20]!r}")
    return value


def _write_json(kind: str, word: str) -> str:
    """One token as JSON; `new Date(` and its bracket are none of it."""
    if kind == "sign":
        return word.strip("()")
    if kind == "date":
        return ""
    if kind == "string":
        # Escaped surrogate pairs become one character, and half of a pair becomes U+FFFD.
        whole = _ESCAPE.sub(_unescape, word[1:-1]).encode("utf-16", "surrogatepass")
        return json.dumps(whole.decode("utf-16", "replace"))
    if kind == "number":
        number = int(word) if re.fullmatch(r"[+-]?\d{1,15}", word) else float(word)
        return json.dumps(number if math.isfinite(number) else None)
    return json.dumps(word if kind == "key" else _WORDS.get(word))


def _unescape(match: re.Match[str]) -> str:
    if digits := match[1] or match[2] or match[3]:
        return chr(int(digits, 16)) if int(digits, 16) <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(match[4], match[4])


def _make_error(text: str, at: int) -> NotALiteral:
    return NotALiteral(f"no literal at {at}: {text[at : at + 20]!r}")
