"""The router alone: its first hit among the offered tools, its arguments copied from the request.

Two cells. Among the offered tools it is asked with an allow-list of just those; over its whole
pool with none. A question that offers a tool the index does not hold (a changed schema, a newer
contract) is none it can be asked: `not_in_index`, counted apart. Its "no tool" is no call.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.contracts.canonical import contract_digest
from training.evaluation.predictors.interface import (
    Answered,
    Asked,
    CannotPredict,
    OnDone,
    PredictorKind,
    UnusableModel,
    make_failed_answer,
)
from training.evaluation.predictors.slot_copy import copy_slots

if TYPE_CHECKING:
    from serving.ranking.query import QueryAnswer, ToolQuery
    from serving.router import Router

NOT_IN_INDEX = "not_in_index"
_BATCH = 32
_MARKS = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


class RouterPredictor:
    """The router of an index's folder (`toolmill index --out`, or a home). Raises CannotPredict."""

    kind: PredictorKind = "router"
    label = "router"

    def __init__(self, place: Path | None = None, *, router: "Router | None" = None) -> None:
        if router is None:
            from serving.index.model import IndexMissing
            from serving.router import open_router

            try:
                router = open_router(place or Path())
            except IndexMissing as error:
                raise UnusableModel(str(error)) from error
            except (LookupError, ValueError, OSError, RuntimeError) as error:
                raise CannotPredict(str(error)) from error
        self._router = router
        self._places: dict[str, int] = {}
        for at, tool in enumerate(router.index.tools):
            self._places.setdefault(tool.contract_digest, at)

    def predict(self, asked: Sequence[Asked], on_done: OnDone | None = None) -> list[Answered]:
        out: list[Answered] = []
        for start in range(0, len(asked), _BATCH):
            out += self._predict_part(asked[start : start + _BATCH])
            if on_done:
                on_done(len(out), len(asked))
        return out

    def _predict_part(self, part: Sequence[Asked]) -> list[Answered]:
        began = time.perf_counter()
        held = [self._map_offered_tools(one) for one in part]
        asks = [
            self._ask_router(one, places)
            for one, places in zip(part, held, strict=True)
            if places is not None
        ]
        found = iter(self._router.find_many(asks))
        answers = [
            make_failed_answer(NOT_IN_INDEX)
            if places is None
            else self._read_hits(one, next(found), places)
            for one, places in zip(part, held, strict=True)
        ]
        took = (time.perf_counter() - began) / len(part)
        return [Answered(**{**vars(answer), "seconds": took}) for answer in answers]

    def _map_offered_tools(self, asked: Asked) -> dict[str, dict[str, Any]] | None:
        """Tool id -> contract of what is offered; None where the index lacks one of them."""
        out = {}
        for tool in asked.tools:
            at = self._places.get(contract_digest(tool))
            if at is None and not asked.whole_pool:
                return None
            if at is not None:
                out[self._router.index.tools[at].tool_id] = tool
        return out

    def _ask_router(self, asked: Asked, offered: Mapping[str, Any]) -> "ToolQuery":
        from serving.ranking.query import ToolQuery

        allowed = tuple(sorted(name.translate(_MARKS) for name in offered))
        return ToolQuery(
            query=asked.request_text, k=1, allowed=None if asked.whole_pool else allowed
        )

    def _read_hits(
        self, asked: Asked, answer: "QueryAnswer", offered: Mapping[str, Mapping[str, Any]]
    ) -> Answered:
        if answer.no_tool or not answer.hits:
            return Answered([], "no_call")
        hit = answer.hits[0]
        contract = offered.get(hit.tool_id)
        if contract is None:  # only over the whole pool: a tool beside those of the question
            place = self._router.index.place_of(hit.tool_id)
            contract = self._router.index.contract(place) if place is not None else {}
            names = {tool["name"] for tool in asked.tools}
            same = _is_same_tool(contract, asked.tools)
            name = hit.tool if same or hit.tool not in names else hit.tool_id
        else:
            name = str(contract["name"])
        return Answered(
            [{"name": name, "arguments": copy_slots(contract, asked.request_text)}], "call"
        )


def _is_same_tool(contract: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a tool is one of those asked about, listed by another server."""
    return any(
        tool["name"] == contract.get("name") and tool["inputSchema"] == contract.get("inputSchema")
        for tool in tools
    )
