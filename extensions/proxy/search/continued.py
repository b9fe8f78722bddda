"""What `previous_response_id` stands for, where an answer was made of several."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.json_types import JsonObject

_MOST = 1_000  # answers that are remembered, the latest
_MOST_BYTES = 32_000_000  # of all their items together, as JSON


@dataclass(frozen=True)
class _Known:
    response_id: str
    items: tuple[Any, ...]
    size: int


class ContinuedAnswers:
    """Answers whose id or items the upstream knows otherwise, for one event loop: a client of a
    stream was told the id of its first answer, and the outputs of the last searches were never
    sent on. most, most_bytes: what is remembered, the latest; an answer whose items alone are more
    is not."""

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._most, self._most_bytes, self._size = most, most_bytes, 0

    def note_answer(self, shown: Any, last: Any, items: Sequence[Any]) -> None:
        """shown: the id as the client has it; last: of the upstream's last answer. items: outputs
        that it lacks."""
        if not (isinstance(shown, str) and isinstance(last, str) and (items or shown != last)):
            return
        self._forget(shown)
        size = len(shown) + len(last) + len(json.dumps(items))
        if size > self._most_bytes:
            return
        self._known[shown] = _Known(last, tuple(items), size)
        self._size += size
        while len(self._known) > self._most or self._size > self._most_bytes:
            self._forget(next(iter(self._known)))

    def _forget(self, shown: str) -> None:
        if (known := self._known.pop(shown, None)) is not None:
            self._size -= known.size

    def resume_request(self, body: JsonObject) -> JsonObject:
        """The request in the upstream's words."""
        previous = body.get("previous_response_id")
        known = self._known.get(previous) if isinstance(previous, str) else None
        if known is None:
            return body
        given = body.get("input")
        said = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items = [*known.items, *(said if isinstance(said, list) else [])]
        return {**body, "previous_response_id": known.response_id, "input": items}
