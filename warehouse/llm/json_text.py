"""JSON in a model's text: every value that stands in it, whatever stands around it."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# What is read in vain before the rest is left unread: every `{` of a broken text is a start, and
# each may be read to the end; 100,000 of them took 4.8 s.
_MOST_IN_VAIN, _VAIN_START = 2_000_000, 1000
# The repair of 10,000 characters of quoted words took 8.6 s, of 20,000 four times that; what is an
# answer takes milliseconds, and everybody else waits meanwhile.
REPAIR_S = 0.5
_OBJECT = re.compile(r'\{\s*"')
_CONSTANT = re.compile(r"[:\[,]\s*-?(?:NaN|Infinity)\b")
_TWO = re.compile(r"\}\s*(?:;\s*)?\{")
_FENCE = re.compile(r"```(?:json|python|tool_code)?(.*?)(?:```|$)", re.DOTALL)


@dataclass(frozen=True)
class JsonFound:
    """One JSON object or list of a text. `in_broken`: an object before it broke off, so that it may
    be a part of that one."""

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


def read_json(text: str) -> tuple[Any, int]:
    """The JSON value that a text begins with, and where it ends. Raises ValueError."""
    value, end, stopped = _decode_at(text, 0)
    if end is None:
        raise ValueError(f"no JSON value, broken at character {stopped}")
    return value, end


def find_fenced(text: str) -> list[str]:
    """What stands in the code fences of a text, of the languages that a model writes calls in; the
    last one may be open."""
    return [inner for found in _FENCE.findall(text) if (inner := found.strip())]


def strip_fence(text: str) -> str | None:
    """What stands in the one code fence that the text is; None where it is none."""
    found = _FENCE.fullmatch(text.strip())
    return found[1].strip() if found else None


def repair_json(text: str) -> list[Any]:
    """The values that json-repair makes of a broken text, within REPAIR_S; [] where it cannot.

    Nor of one where it would make the text "NaN" of a number that JSON does not have, or keep the
    last of two objects of one shape that follow each other.
    """
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
    """Ends pure Python code that takes longer, at its next call of a function: a thread could not
    be ended, and a process costs more than the answer."""
    deadline, before = time.perf_counter() + seconds, sys.getprofile()

    def look(_frame: Any, _event: str, _arg: Any) -> None:
        if time.perf_counter() > deadline:
            raise _TooLong

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)
