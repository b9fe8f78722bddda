"""Rules about what a person does not see and a model reads: hidden characters, encodings, marks."""

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

import regex

from assets.contracts.scan.rule_table import HIGH, LOW, MEDIUM, RuleHit, build_hit, keep_gravest
from assets.contracts.scan.tool_texts import is_disguised
from warehouse.patterns import Pattern, compile_pattern

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


def find_hidden(text: str, role: str) -> Iterator[RuleHit]:
    """All hits of a text; plain ASCII takes one look."""
    if text.isascii():
        if not text.isprintable():
            yield from _find_controls(text)
        elif "\\" in text:
            yield from _find_written(text)
        return
    yield from _find_controls(text)
    yield from _find_written(text)
    for match in _TAG_RUN.finditer(text):
        if not text[: match.start()].endswith(_FLAG) or len(match[0]) > 8:
            yield build_hit("hidden_tags", *match.span())
            break
    natural = _RIGHT_TO_LEFT.search(text)
    yield from keep_gravest(
        build_hit(
            "bidi_override", *match.span(), LOW if natural and match[0] in "\u202a\u202b" else ""
        )
        for match in _OVERRIDE.finditer(text)
    )
    match = _ISOLATE.search(text)
    if match and not natural:
        yield build_hit("bidi_override", *match.span(), MEDIUM)
    yield from keep_gravest(_find_zero_width(text))
    yield from keep_gravest(_find_selectors(text))
    for match in _WORD.finditer(text):
        if is_disguised(match[0], wholly=role == "name"):
            yield build_hit("lookalike_letters", *match.span(), HIGH if role == "name" else "")
            break


def decode_tags(text: str) -> str:
    """The ASCII text that tag characters spell, "" without any."""
    if text.isascii():
        return ""
    return "".join(chr(ord(char) - 0xE0000) for run in _TAG_RUN.findall(text) for char in run)


def _find_controls(text: str) -> Iterator[RuleHit]:
    match = _ESCAPE.search(text)
    if match:
        yield build_hit("terminal_escape", *match.span())
    match = _REWRITE.search(text) or _CONTROL.search(text)
    if match:
        # A backspace or a lone carriage return rewrites the line that a person reads.
        yield build_hit("control_character", *match.span(), HIGH if match[0] in "\x08\x7f" else "")


def _find_written(text: str) -> Iterator[RuleHit]:
    match = _WRITTEN_ESCAPE.search(text)
    if match:
        why = "writes a terminal escape out as text"
        yield build_hit("terminal_escape", *match.span(), LOW, why)


def _find_zero_width(text: str) -> Iterator[RuleHit]:
    needed = {match.start() for match in _JOINED.finditer(text)}
    for match in _ZERO_RUN.finditer(text):
        start, end = match.span()
        if all(at in needed for at in range(start, end)) or (start == 0 and match[0] == "\ufeff"):
            continue
        before, after = text[start - 1 : start], text[end : end + 1]
        inside = before.isalnum() and after.isalnum() and match[0].strip("\u00ad")
        long = end - start >= _LONG_RUN
        yield build_hit("zero_width", start, end, HIGH if long else MEDIUM if inside else LOW)


def _find_selectors(text: str) -> Iterator[RuleHit]:
    for match in _SELECTOR_RUN.finditer(text):
        start, end = match.span()
        if end - start == 1 and _HAN.match(text[start - 1 : start]):
            continue
        yield build_hit("variation_selectors", start, end, "" if end - start > 2 else MEDIUM)


_BUDGET = 196_608  # characters decoded of one text, whatever stands within what was decoded
_DEPTH = 3  # codes within codes

_BASE64 = compile_pattern(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = compile_pattern(
    r"(?:0x)?[0-9A-Fa-f]{32,}|(?:\\x[0-9A-Fa-f]{2}){8,}|(?:[0-9A-Fa-f]{2}[ :,]){12,}"
)
_PERCENT = compile_pattern(r"(?:%[0-9A-Fa-f]{2}[0-9A-Za-z_.~-]{0,24}){4,}")
_ESCAPES = compile_pattern(r"(?:\\u[0-9A-Fa-f]{4}){5,}")
_ENTITIES = compile_pattern(r"(?:&#x?[0-9A-Fa-f]{1,6};){5,}")
_NOT_HEX = re.compile(r"0x|\\x|[ :,]")
_ROT13 = re.compile(r"rot[ -]?13", re.IGNORECASE)
_REVERSED = re.compile(r"\brevers|\bbackward|\bmirror", re.IGNORECASE)
_TWO_WORDS = compile_pattern(
    r"[\p{L}\p{Nl}\p{No}]{2,} [\p{L}\p{Nl}\p{No}]{2}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4}"
)


@dataclass(frozen=True)
class DecodedRun:
    """What a run of the text decodes to, "" where no more is decoded. plain: whether it reads as
    words on its own."""

    start: int
    end: int
    text: str
    plain: bool


def decode_text(text: str) -> Iterator[DecodedRun]:
    """Every run of a text that decodes to readable text, and runs within what was decoded; the last
    is empty where the budget was spent before the end."""
    left = _BUDGET
    todo = [(run, 1) for run in _decode_once(text)] + [(run, 1) for run in _decode_whole(text)]
    for run, depth in todo:
        left -= len(run.text)
        if left < 0:
            yield DecodedRun(run.start, run.end, "", False)
            return
        yield run
        if depth < _DEPTH:
            inner = _decode_once(run.text)
            todo += [
                (replace(inner_run, start=run.start, end=run.end), depth + 1) for inner_run in inner
            ]


def _decode_once(text: str) -> Iterator[DecodedRun]:
    if len(text) >= 15:
        for pattern, decode in (
            (_BASE64, _decode_base64),
            (_HEX, _decode_hex),
            (_PERCENT, unquote),
            (_ESCAPES, lambda run: "".join(chr(int(part, 16)) for part in run.split("\\u")[1:])),
            (_ENTITIES, html.unescape),
        ):
            yield from _find_runs(text, pattern, decode)
    smuggled = decode_tags(text)
    if smuggled:
        yield DecodedRun(0, len(text), smuggled, False)


def _decode_whole(text: str) -> Iterator[DecodedRun]:
    """A text that says of itself that it is turned round or shifted."""
    if _ROT13.search(text):
        yield DecodedRun(0, len(text), codecs.encode(text, "rot13"), False)
    if _REVERSED.search(text):
        yield DecodedRun(0, len(text), text[::-1], False)


def _find_runs(text: str, pattern: Pattern, decode: object) -> Iterator[DecodedRun]:
    for run in pattern.finditer(text):
        out = decode(run[0])  # type: ignore[operator]
        if out and out != run[0] and _is_readable(out):
            yield DecodedRun(run.start(), run.end(), out, _TWO_WORDS.search(out) is not None)


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


def build_encoded_hit(run: DecodedRun, worst: str) -> RuleHit | None:
    """The hit of a decoded run. worst: the gravest severity of the rules on what it says."""
    if worst in (HIGH, MEDIUM):
        return build_hit("encoded_instruction", run.start, run.end)
    return build_hit("encoded_text", run.start, run.end) if run.plain else None


_TEMPLATE = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|begin_of_text)\|?>"
    r"|\[/?INST\]|<</?SYS>>|</?(?:tool_description|function_results|tool_result)>"
    r"|\n\n(?:Human|Assistant|System): "
)
_TAG = re.compile(
    r"(?i)[<\[{]{1,2}\s{0,4}/?"
    r"(?:very[ _-]?important|important|system|instructions?|secret|hidden|admin"
    r"|critical|system[_ -](?:prompt|message|instructions?|override|notice)|override|internal"
    r"|priority"
    r"|hidden[_ -]instructions?|assistant|confidential|mandatory|sys|do[_ -]not[_ -]show)"
    r"\s{0,4}/?(?:[>\]}]{1,2}|:(?=[^{}]{1,400}\}\}))"
)
_BANNER = re.compile(
    r"(?:^|\n|(?<=[.!?:>] ))[ \t]{0,8}(?:#{1,4} ?|\*{2})?(?:SYSTEM(?: PROMPT| MESSAGE| OVERRIDE)?"
    r"|ADMIN|INSTRUCTIONS? (?:TO|FOR) (?:AI|LLM|ASSISTANT|THE ASSISTANT|THE MODEL))\*{0,2} ?:"
)
_COMMENT_TEXT = compile_pattern(r"[\p{L}\p{Nl}\p{No}]{2,}(?:\W{1,3}[\p{L}\p{Nl}\p{No}]{2,}){2}")
_PADDING = re.compile(r"(?:\n[ \t]{0,200}){25}|[ \u00a0\u2000-\u200a\u3000\t]{120}")


def find_marks(text: str) -> Iterator[RuleHit]:
    """All hits of a text."""
    for rule, pattern in (
        ("chat_template", _TEMPLATE),
        ("authority_tag", _TAG),
        ("authority_tag", _BANNER),
    ):
        match = pattern.search(text)
        if match:
            yield build_hit(rule, *match.span())
    for opening, closing in (("<!--", "-->"), ("[//]: #", "\n"), ("[comment]: #", "\n")):
        start = text.find(opening)
        if start >= 0:
            end = text.find(closing, start)
            end = len(text) if end < 0 else end + len(closing)
            if _COMMENT_TEXT.search(text[start : min(end, start + 4_000)]):
                yield build_hit("hidden_comment", start, end)
    match = _PADDING.search(text)
    if match and text[match.end() :].strip():
        yield build_hit("out_of_view", *match.span())
