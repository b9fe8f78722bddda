"""Hidden: characters that a person does not see and a model reads."""

import re
from collections.abc import Iterator

import regex

from assets.contracts.scan.finding import HIGH, LOW, MEDIUM, Hit, build_hit, keep_gravest
from assets.contracts.scan.text.lookalike import is_disguised

_TAG_RUN = re.compile("[\U000e0000-\U000e007f]+")
_FLAG = "\U0001f3f4"  # black flag: tags behind it choose a region's flag
_OVERRIDE = re.compile("[\u202a\u202b\u202d\u202e]")
_ISOLATE = re.compile("[\u2066-\u2068]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_ZERO_RUN = re.compile(
    "[\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff\u180e\u00ad\u034f\u3164\u115f\u1160]+"
)
_SELECTOR_RUN = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}|[\U000e0100-\U000e01ef]")
_HAN = regex.compile(r"\p{Han}")
_JOINED = regex.compile(
    r"(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])\u200d(?=\p{Extended_Pictographic})"
    r"|(?<=[\p{Arabic}\p{Devanagari}\p{Bengali}\p{Gurmukhi}\p{Gujarati}\p{Oriya}\p{Tamil}\p{Telugu}"
    r"\p{Kannada}\p{Malayalam}\p{Sinhala}\p{Khmer}\p{Myanmar}\p{Mongolian}\p{Syriac}])[\u200c\u200d]"
)
_ESCAPE = re.compile("\x1b[\\[\\]()PX^_c78=>]|\x9b|\x1b")
_WRITTEN_ESCAPE = re.compile(r"\\(?:x1b|u001b|033|e)\[[0-9;]{0,16}[A-Za-z]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9a\x9c-\x9f]")
_REWRITE = re.compile("[\x08\x7f]")
_WORD = re.compile(r"[^\W_]{2,64}")
_LONG_RUN = 6  # zero-width characters in a row that can only be a code


def find_hidden(text: str, role: str) -> Iterator[Hit]:
    """All hits of a text; plain ASCII takes one look."""
    if text.isascii():
        if not text.isprintable():
            yield from _find_controls(text)
        elif "\\" in text:
            yield from _find_written(text)
        return
    yield from _find_controls(text)
    yield from _find_written(text)
    for found in _TAG_RUN.finditer(text):
        if not text[: found.start()].endswith(_FLAG) or len(found[0]) > 8:
            yield build_hit("hidden_tags", *found.span())
            break
    yield from _find_directions(text)
    yield from keep_gravest(_find_zero_width(text))
    yield from keep_gravest(_find_selectors(text))
    yield from _find_letters(text, role)


def decode_tags(text: str) -> str:
    """The ASCII text that tag characters spell, "" without any."""
    if text.isascii():
        return ""
    return "".join(chr(ord(char) - 0xE0000) for run in _TAG_RUN.findall(text) for char in run)


def _find_controls(text: str) -> Iterator[Hit]:
    found = _ESCAPE.search(text)
    if found:
        yield build_hit("terminal_escape", *found.span())
    found = _REWRITE.search(text) or _CONTROL.search(text)
    if found:
        # A backspace or a lone carriage return rewrites the line that a person reads.
        yield build_hit("control_character", *found.span(), HIGH if found[0] in "\x08\x7f" else "")


def _find_written(text: str) -> Iterator[Hit]:
    found = _WRITTEN_ESCAPE.search(text)
    if found:
        why = "writes a terminal escape out as text"
        yield build_hit("terminal_escape", *found.span(), LOW, why)


def _find_directions(text: str) -> Iterator[Hit]:
    natural = _RIGHT_TO_LEFT.search(text)
    yield from keep_gravest(
        build_hit(
            "bidi_override", *found.span(), LOW if natural and found[0] in "\u202a\u202b" else ""
        )
        for found in _OVERRIDE.finditer(text)
    )
    found = _ISOLATE.search(text)
    if found and not natural:
        yield build_hit("bidi_override", *found.span(), MEDIUM)


def _find_zero_width(text: str) -> Iterator[Hit]:
    needed = {found.start() for found in _JOINED.finditer(text)}
    for found in _ZERO_RUN.finditer(text):
        start, end = found.span()
        if all(at in needed for at in range(start, end)) or (start == 0 and found[0] == "\ufeff"):
            continue
        before, after = text[start - 1 : start], text[end : end + 1]
        inside = before.isalnum() and after.isalnum() and found[0].strip("\u00ad")
        long = end - start >= _LONG_RUN
        yield build_hit("zero_width", start, end, HIGH if long else MEDIUM if inside else LOW)


def _find_selectors(text: str) -> Iterator[Hit]:
    for found in _SELECTOR_RUN.finditer(text):
        start, end = found.span()
        if end - start == 1 and _HAN.match(text[start - 1 : start]):
            continue
        yield build_hit("variation_selectors", start, end, "" if end - start > 2 else MEDIUM)


def _find_letters(text: str, role: str) -> Iterator[Hit]:
    for found in _WORD.finditer(text):
        if is_disguised(found[0], wholly=role == "name"):
            yield build_hit("lookalike_letters", *found.span(), HIGH if role == "name" else "")
            break
