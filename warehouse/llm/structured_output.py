"""Reading a model's text as a value: tolerant of form, strict about content."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from warehouse.llm.reasoning import without_thinking

Value = TypeVar("Value", bound=BaseModel)

# Beyond this an answer is not the short object that was asked for; repairing it costs seconds.
MAX_CHARS = 200_000
# The repair of 10,000 characters of quoted words took 8.6 s, of 20,000 four times that; what is an
# answer takes milliseconds, and everybody else waits meanwhile.
REPAIR_S = 0.5
MAX_CANDIDATES = 8
_FENCE = re.compile(r"```(?:json|JSON)?\s*\n?(.*?)```", re.DOTALL)


class BadAnswer(ValueError):
    """An answer that cannot be used. `ask_again` when another try may well help."""

    def __init__(self, kind: str, message: str, *, ask_again: bool = True) -> None:
        super().__init__(message)
        self.kind, self.ask_again = kind, ask_again


def parse(text: str, finish: str, schema: type[Value]) -> Value:
    """The value in a model's answer. Raises BadAnswer: truncated, refused, empty, non_json,
    wrong_shape."""
    if finish in ("refusal", "content_filter"):
        raise BadAnswer("refused", f"the model refused: {_short(text)}", ask_again=False)
    if not text.strip():
        raise BadAnswer("empty", "the answer is empty")
    if len(text) > MAX_CHARS:
        raise BadAnswer("wrong_shape", f"the answer has {len(text)} characters", ask_again=False)
    candidates = list(_candidates(without_thinking(text)))
    if finish == "length" and not candidates:
        raise BadAnswer("truncated", f"cut off after {len(text)} characters", ask_again=False)
    if not candidates:
        raise BadAnswer("non_json", f"no JSON object in {_short(text)}")
    complaint = ""
    for candidate in candidates:
        try:
            return schema.model_validate(candidate)
        except ValidationError as error:
            complaint = complaint or _first_complaint(error)
    # What json-repair closed by itself may lack its tail; that is the limit's fault.
    kind = "truncated" if finish == "length" else "wrong_shape"
    raise BadAnswer(kind, complaint, ask_again=kind == "wrong_shape")


def _candidates(text: str) -> "list[Any]":
    """Objects the text may hold, strictest reading first."""
    found: list[Any] = []
    fenced = islice(_FENCE.finditer(text), 2 * MAX_CANDIDATES)
    spans = [text, *(match.group(1) for match in fenced)]
    first, last = text.find("{"), text.rfind("}")
    if 0 <= first < last:
        spans.append(text[first : last + 1])
    for span in spans:
        if len(found) == MAX_CANDIDATES:
            break
        try:
            value = json.loads(span)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value not in found:
            found.append(value)
    if found or "{" not in text:
        return found
    return _repaired(text[first:])


def _repaired(text: str) -> list[Any]:
    import json_repair

    try:
        with _at_most(REPAIR_S):
            value = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, _TooLong):
        return []
    values = value if isinstance(value, list) else [value]
    return [value for value in values if isinstance(value, dict) and value]


class _TooLong(Exception):
    """The time of `_at_most` is over."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
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


def _first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the object"
    return f"{where}: {first['msg']}"


def _short(text: str) -> str:
    return repr(text.strip()[:80])
