"""Other forms of one value that its schema may have meant: read from text, cut to a choice, …"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from assets.contracts.repair.names import find_nearest, find_same_name, fold_name
from assets.contracts.repair.problems import ABSENT, find_choices, find_types
from assets.contracts.repair.written_values import propose_dates, propose_epoch, read_quantity
from assets.contracts.schema_shapes import iterate_branches, name_json_type
from warehouse.json_types import Schema
from warehouse.llm.json_answers import read_json, strip_fence

_WHOLE = re.compile(r"[+-]?\d{1,18}(?:\.0{1,18})?")
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SIGNED = re.compile(r"(?:(?<!\w)[+-])?\d+(?:\.\d+)*")
# In which no two spellings of one choice differ: `C#` is not `C++`.
_SYMBOLS = re.compile(r"[^\w\s\-./:,'\"()]")
_ENCLOSED = re.compile(  # in markup or quotes
    r"^(?:[\"'`*]{1,3}|[“”„‘’«‹\[{<]{1,2})([^\s\"'`*“”„‘’«‹\[{<].*?)"
    r"(?:[\"'`*]{1,3}|[“”‘’»›\]}>]{1,2})$"
)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_JSON_TEXT = re.compile(r"json|array|\blist\b|serializ|serialis|stringif", re.IGNORECASE)
_CUT = 3  # letters that a choice cut short lacks at least: `USD` is no `USDT`
_WORDS = 4  # of one entry of a list that was given as text with commas
_LONGEST_CHOICE = 300  # characters of a text that may be meant for a choice
_LONGEST = 100_000  # characters of a text that is read as JSON


class WrittenFloat(float):
    """A number with the text that it was written as: as a text, `3.10` is not `3.1`."""

    written: str

    def __new__(cls, written: str) -> "WrittenFloat":
        number = super().__new__(cls, written)
        number.written = written
        return number

    def __deepcopy__(self, _: Any) -> "WrittenFloat":
        return self


def propose_values(
    value: Any, schema: Any, root: Schema, name: str = ""
) -> Iterator[tuple[Any, bool]]:
    """(another form of the value, whether it may have flaws of its own). name: of the parameter."""
    types = find_types(schema, root)
    choices = find_choices(schema, root)
    if choices:
        yield from ((choice, False) for choice in _propose_choices(value, choices))
    if isinstance(value, str):
        yield from _parse_text_value(value, types)
        yield from ((piece, False) for piece in _propose_written(value, types, schema, root, name))
    elif isinstance(value, bool):
        if "string" in types:
            yield ("true" if value else "false"), False
        if types & {"integer", "number"} and _is_switch(schema, root):
            yield int(value), False
    elif isinstance(value, int | float):
        if "boolean" in types and value in (0, 1):
            yield bool(value), False
        if "string" in types:
            yield _format_number(value), False
    elif isinstance(value, list | dict):
        alone = value[0] if isinstance(value, list) and len(value) == 1 else ABSENT
        if alone is not ABSENT and ("array" not in types or name_json_type(alone) in types):
            yield alone, True
        several = isinstance(value, list) and len(value) != 1
        if "string" in types and (not several or _is_json_text(name, schema, root)):
            yield json.dumps(value, ensure_ascii=False), False
    if "array" in types and not isinstance(value, list) and value is not None:
        pieces = [piece.strip() for piece in value.split(",")] if isinstance(value, str) else []
        # Of 84 golden lists of texts, none of one held a comma in it and one of several did, a
        # list of sentences: a few words between commas are a list.
        if len(pieces) > 1 and all(0 < len(part.split()) <= _WORDS for part in pieces):
            yield pieces, True
        if not (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
            yield [value], True


def _parse_text_value(text: str, types: set[str]) -> Iterator[tuple[Any, bool]]:
    word = text.strip()
    if "integer" in types and _WHOLE.fullmatch(word):
        yield int(word.partition(".")[0]), False
    if "number" in types and _NUMBER.fullmatch(word) and math.isfinite(float(word)):
        whole = _WHOLE.fullmatch(word) and "." not in word
        yield (int(word) if whole else float(word)), False
    if "boolean" in types and word.lower() in (*_TRUE, *_FALSE):
        yield word.lower() in _TRUE, False
    if "null" in types and word.lower() in ("null", "none"):
        yield None, False
    if types & {"array", "object"}:
        parsed = parse_json(word)
        json_types = (list if "array" in types else (), dict if "object" in types else ())
        if isinstance(parsed, tuple(json_type for json_type in json_types if json_type)):  # type: ignore[arg-type]
            yield parsed, True


def _propose_written(
    text: str, types: set[str], schema: Any, root: Schema, name: str
) -> Iterator[Any]:
    """What a text for people says: a quantity, a date, a text without blanks around it."""
    if types & {"integer", "number"}:
        number = read_quantity(text, name, schema, root)
        if number is not None and number.is_integer():
            yield int(number)
        elif number is not None and "number" in types:
            yield number
        yield from propose_epoch(text, name, schema, root)
    if "string" in types:
        yield from propose_dates(text, schema, root)
        if len(text) <= _LONGEST and (bare := text.strip()) != text:
            yield bare


def _propose_choices(value: Any, choices: list[Any]) -> Iterator[Any]:
    """The choice that was meant: the same but for its type, its case and separators, its spelling,
    or cut short; only where one alone is meant."""
    word = value if isinstance(value, str) else _format_number(value) if _is_number(value) else None
    if isinstance(value, bool):
        word = "true" if value else "false"
    if word is None:
        return
    texts = {
        choice if isinstance(choice, str) else json.dumps(choice): choice
        for choice in reversed(choices)
    }
    if word in texts:
        yield texts[word]
    if len(word) > _LONGEST_CHOICE:
        return
    bare = _ENCLOSED.sub(r"\1", word.strip())
    bare = bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare
    signs = [_list_signs(spelling) for spelling in {word, bare}]
    names = [text for text in texts if _list_signs(text) in signs]
    if (meant := find_same_name(word, names)) is not None:
        yield texts[meant]
    if (meant := find_nearest(word, names)) is not None:
        yield texts[meant]
    short = fold_name(word)
    if len(short) >= 3:
        longer = [text for text in texts if fold_name(text).startswith(short)]
        if len(longer) == 1 and len(fold_name(longer[0])) >= len(short) + _CUT:
            yield texts[longer[0]]


def _list_signs(text: str) -> tuple[list[str], list[str]]:
    """What two spellings of one choice have in common: numbers with their signs and points, and
    symbols."""
    return _SIGNED.findall(text), _SYMBOLS.findall(text)


def _is_switch(schema: Any, root: Schema) -> bool:
    """Whether a number can be nothing but 0 and 1."""
    bounds = [(b.get("minimum"), b.get("maximum")) for b in iterate_branches(schema, root)]
    choices = find_choices(schema, root)
    return (0, 1) in bounds or (bool(choices) and all(choice in (0, 1) for choice in choices))


def parse_json(text: str) -> Any:
    """The JSON of a text, also within a code fence; None where it is none."""
    text = text.strip()
    if not text.startswith(("{", "[", "`")) or len(text) > _LONGEST:
        return None
    fenced = strip_fence(text)
    text = text if fenced is None else fenced
    try:
        value, end = read_json(text)
    except ValueError:
        return None
    return None if text[end:].strip() else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_json_text(name: str, schema: Any, root: Schema) -> bool:
    """Whether name or description say that a text holds JSON."""
    about = [name, *(str(branch.get("description")) for branch in iterate_branches(schema, root))]
    return any(_JSON_TEXT.search(text[:2000]) for text in about)


def _format_number(value: float) -> str:
    if isinstance(value, WrittenFloat):
        return value.written
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else json.dumps(value)
