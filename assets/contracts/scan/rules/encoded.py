"""Encoded: text within text: Base64, hex, percent signs, escapes, entities, tags, turned round."""

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

from assets.contracts.scan.finding import HIGH, MEDIUM, Hit, build_hit
from assets.contracts.scan.rules.hidden import decode_tags

_BUDGET = 196_608  # characters decoded of one text, whatever stands within what was decoded
_DEPTH = 3  # codes within codes

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(r"(?:0x)?[0-9A-Fa-f]{32,}|(?:\\x[0-9A-Fa-f]{2}){8,}|(?:[0-9A-Fa-f]{2}[ :,]){12,}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}[\w.~-]{0,24}){4,}")
_ESCAPES = re.compile(r"(?:\\u[0-9A-Fa-f]{4}){5,}")
_ENTITIES = re.compile(r"(?:&#x?[0-9A-Fa-f]{1,6};){5,}")
_NOT_HEX = re.compile(r"0x|\\x|[ :,]")
_ROT13 = re.compile(r"rot[ -]?13", re.IGNORECASE)
_REVERSED = re.compile(r"\brevers|\bbackward|\bmirror", re.IGNORECASE)
_TWO_WORDS = re.compile(
    r"(?<![^\W\d_])[^\W\d_]{2,}+ [^\W\d_]{2}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4}"
)


@dataclass(frozen=True)
class Decoded:
    """What a run of the text decodes to, "" where no more is decoded. plain: whether it reads as
    words on its own."""

    start: int
    end: int
    text: str
    plain: bool


def decode_text(text: str) -> Iterator[Decoded]:
    """Every run of a text that decodes to readable text, and runs within what was decoded; the last
    is empty where the budget was spent before the end."""
    left = _BUDGET
    todo = [(found, 1) for found in _decode_once(text)] + [
        (found, 1) for found in _decode_whole(text)
    ]
    for found, depth in todo:
        left -= len(found.text)
        if left < 0:
            yield Decoded(found.start, found.end, "", False)
            return
        yield found
        if depth < _DEPTH:
            inner = _decode_once(found.text)
            todo += [(replace(one, start=found.start, end=found.end), depth + 1) for one in inner]


def _decode_once(text: str) -> Iterator[Decoded]:
    if len(text) >= 15:
        for pattern, decode in (
            (_BASE64, _decode_base64),
            (_HEX, _decode_hex),
            (_PERCENT, unquote),
            (_ESCAPES, _decode_escapes),
            (_ENTITIES, html.unescape),
        ):
            yield from _find_runs(text, pattern, decode)
    smuggled = decode_tags(text)
    if smuggled:
        yield Decoded(0, len(text), smuggled, False)


def _decode_whole(text: str) -> Iterator[Decoded]:
    """A text that says of itself that it is turned round or shifted."""
    if _ROT13.search(text):
        yield Decoded(0, len(text), codecs.encode(text, "rot13"), False)
    if _REVERSED.search(text):
        yield Decoded(0, len(text), text[::-1], False)


def _find_runs(text: str, pattern: re.Pattern[str], decode: object) -> Iterator[Decoded]:
    for run in pattern.finditer(text):
        out = decode(run[0])  # type: ignore[operator]
        if out and out != run[0] and _is_readable(out):
            yield Decoded(run.start(), run.end(), out, _TWO_WORDS.search(out) is not None)


def _decode_base64(run: str) -> str:
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    body = body[: len(body) // 4 * 4] if len(body) % 4 == 1 else body
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4))
    except (binascii.Error, ValueError):
        return ""
    return _decode_bytes(data)


def _decode_hex(run: str) -> str:
    digits = _NOT_HEX.sub("", run)
    return _decode_bytes(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _decode_escapes(run: str) -> str:
    return "".join(chr(int(part, 16)) for part in run.split("\\u")[1:])


def _decode_bytes(data: bytes) -> str:
    for encoding in ("utf-8", "utf-16-le") if b"\x00" in data else ("utf-8",):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    # The run may have begun or ended amid letters of its neighbours.
    return data.decode("utf-8", "ignore") if data.isascii() else ""


def _is_readable(text: str) -> bool:
    head = text[:400]
    odd = sum(unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") for char in head)
    return len(head) >= 6 and odd - head.count("\n") <= len(head) // 20


def build_encoded_hit(found: Decoded, worst: str) -> Hit | None:
    """The hit of a decoded run. worst: the gravest severity of the rules on what it says."""
    if worst in (HIGH, MEDIUM):
        return build_hit("encoded_instruction", found.start, found.end)
    return build_hit("encoded_text", found.start, found.end) if found.plain else None
