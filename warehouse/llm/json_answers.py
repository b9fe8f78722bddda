"""JSON in a model's text: every value that stands in it, whatever stands around it."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from warehouse.llm.roles import drop_thinking
from warehouse.patterns import compile_pattern
from warehouse.sanitize.untrusted_text import shorten_text

# What is read in vain before the rest is left unread: every `{` of a broken text is a start, and
# each may be read to the end; 100,000 of them took 4.8 s.
_MOST_IN_VAIN, _VAIN_START = 2_000_000, 1000
# The repair of 10,000 characters of quoted words took 8.6 s, of 20,000 four times that; what is an
# answer takes milliseconds, and everybody else waits meanwhile.
REPAIR_S = 0.5
_OBJECT = re.compile(r'\{\s*"')
_CONSTANT = compile_pattern(r"[:\[,]\s*-?(?:NaN|Infinity)\b")
_TWO = compile_pattern(r"\}\s*(?:;\s*)?\{")
_FENCE = compile_pattern(r"(?s)```(?:json|python|tool_code)?(.*?)(?:```|$)")


@dataclass(frozen=True)
class JsonFound:
    """A JSON object or list. `in_broken`: an object broke off before it; maybe a part of that."""

    value: Any
    in_broken: bool


def find_json(text: str) -> Iterator[JsonFound]:
    """The objects and lists that stand in a text, in order, those within others left out. Stops
    where it read too much in vain; the caller caps the text and how many it takes."""
    in_broken = False
    at = in_vain = 0
    while in_vain < _MOST_IN_VAIN:
        at = min((place for mark in "{[" if (place := text.find(mark, at)) >= 0), default=-1)
        if at < 0:
            return
        value, end, stopped = _decode_at(text, at)
        if end is None:
            in_vain += _VAIN_START + stopped - at
            in_broken = in_broken or bool(_OBJECT.match(text, at))
            at += 1
        else:
            yield JsonFound(value, in_broken)
            at = end


def find_fenced(text: str) -> list[str]:
    """Contents of code fences in languages that calls are written in; the last may be open."""
    return [inner for fenced in _FENCE.findall(text) if (inner := fenced.strip())]


def strip_fence(text: str) -> str | None:
    """What stands in the one code fence that the text is; None where it is none."""
    fence = _FENCE.fullmatch(text.strip())
    return fence[1].strip() if fence else None


def repair_json(text: str) -> list[Any]:
    """What json-repair makes of a broken text within REPAIR_S; [] if it cannot, would make "NaN" of
    a number beyond JSON, or keep the last of two objects of one shape."""
    import json_repair

    if _CONSTANT.search(text) or _TWO.search(text):
        return []
    try:
        with _limit_time(REPAIR_S):
            value = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, _TooLong):
        return []
    return value if isinstance(value, list) else [value]


def _decode_at(text: str, at: int) -> tuple[Any, int | None, int]:
    """(value, where it ends, how far was read); (None, None, …) where no JSON value begins."""
    try:
        value, end = _DECODER.raw_decode(text, at)
        return value, end, end
    except json.JSONDecodeError as error:
        return None, None, max(error.pos, at)
    except (ValueError, RecursionError):
        return None, None, len(text)


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class _TooLong(Exception):
    """The time of `_at_most` is over."""


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """Ends slow pure Python at its next call; a thread cannot be ended, a process costs more."""
    deadline, before = time.perf_counter() + seconds, sys.getprofile()

    def look(_frame: Any, _event: str, _arg: Any) -> None:
        if time.perf_counter() > deadline:
            raise _TooLong

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


Value = TypeVar("Value", bound=BaseModel)

# Beyond this an answer is not the short object that was asked for; repairing it costs seconds.
MAX_CHARS = 200_000
MAX_CANDIDATES = 8


class BadAnswer(ValueError):
    """An answer that cannot be used. `ask_again` when another try may well help."""

    def __init__(self, kind: str, message: str, *, ask_again: bool = True) -> None:
        super().__init__(message)
        self.kind, self.ask_again = kind, ask_again


def parse_answer(text: str, finish: str, schema: type[Value]) -> Value:
    """An answer's value. Raises BadAnswer: truncated, refused, empty, non_json, wrong_shape."""
    if finish in ("refusal", "content_filter"):
        raise BadAnswer("refused", f"the model refused: {_quote_beginning(text)}", ask_again=False)
    if not text.strip():
        raise BadAnswer("empty", "the answer is empty")
    if len(text) > MAX_CHARS:
        raise BadAnswer("wrong_shape", f"the answer has {len(text)} characters", ask_again=False)
    candidates = _find_candidates(drop_thinking(text))
    if finish == "length" and not candidates:
        raise BadAnswer("truncated", f"cut off after {len(text)} characters", ask_again=False)
    if not candidates:
        raise BadAnswer("non_json", f"no JSON object in {_quote_beginning(text)}")
    complaint = ""
    for candidate in candidates:
        try:
            return schema.model_validate(candidate)
        except ValidationError as error:
            complaint = complaint or _find_first_complaint(error)
    # What json-repair closed by itself may lack its tail; that is the limit's fault.
    kind = "truncated" if finish == "length" else "wrong_shape"
    raise BadAnswer(kind, complaint, ask_again=kind == "wrong_shape")


def _find_candidates(text: str) -> list[Any]:
    """Objects the text may hold; of a broken one what its repair makes."""
    candidates: list[Any] = []
    whole = (item.value for item in find_json(text) if not item.in_broken)
    for value in whole:
        candidates += [
            candidate for candidate in _pick_objects(value) if candidate not in candidates
        ]
        if len(candidates) >= MAX_CANDIDATES:
            break
    first = text.find("{")
    if candidates or first < 0:
        return candidates
    return [candidate for candidate in _pick_objects(repair_json(text[first:])) if candidate]


def _pick_objects(value: Any) -> list[Any]:
    """The object, or those of a list."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values[:MAX_CANDIDATES] if isinstance(item, dict)]


def _find_first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the object"
    return f"{where}: {first['msg']}"


def _quote_beginning(text: str) -> str:
    return repr(shorten_text(text.strip(), 80))
