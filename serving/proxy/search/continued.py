"""What `previous_response_id` stands for, where an answer was made of several."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.json_types import JsonObject

_MOST = 1_000  # answers that are remembered, the latest


@dataclass(frozen=True)
class _Known:
    response_id: str
    items: tuple[Any, ...]


class ContinuedAnswers:
    """Answers whose id or items the upstream knows otherwise, for one event loop: a client of a
    stream was told the id of its first answer, and the outputs of the last searches were never
    sent on."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def note_answer(self, shown: Any, last: Any, items: Sequence[Any]) -> None:
        """shown: the id as the client has it; last: of the upstream's last answer. items: outputs
        that it lacks."""
        if isinstance(shown, str) and isinstance(last, str) and (items or shown != last):
            self._known[shown] = _Known(last, tuple(items))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)

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
