"""Reading a model's text as a value: tolerant of form, strict about content."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from warehouse.llm.json_text import find_json, repair_json
from warehouse.llm.reasoning import drop_thinking
from warehouse.sanitize.escape import shorten_text

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
    """The value in a model's answer. Raises BadAnswer: truncated, refused, empty, non_json,
    wrong_shape."""
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
    found: list[Any] = []
    whole = (one.value for one in find_json(text) if not one.in_broken)
    for value in whole:
        found += [held for held in _pick_objects(value) if held not in found]
        if len(found) >= MAX_CANDIDATES:
            break
    first = text.find("{")
    if found or first < 0:
        return found
    return [one for one in _pick_objects(repair_json(text[first:])) if one]


def _pick_objects(value: Any) -> list[Any]:
    """The object, or those of a list."""
    held = value if isinstance(value, list) else [value]
    return [one for one in held[:MAX_CANDIDATES] if isinstance(one, dict)]


def _find_first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the object"
    return f"{where}: {first['msg']}"


def _quote_beginning(text: str) -> str:
    return repr(shorten_text(text.strip(), 80))
