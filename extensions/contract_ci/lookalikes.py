"""Tools of other servers that a server's tools look like."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.canonical import contract_digest, tool_text
from assets.vectors.confusable_table import CONFUSABLE, find_confusables
from assets.vectors.encoders.embedder import Embedder
from serving.ranking.query import BadQuery, ToolQuery
from serving.router import Router
from warehouse.json_types import Contract

_NEAREST = 30  # tools of the index that each own tool is compared with


@dataclass(frozen=True)
class LookAlike:
    """tool: of the server itself. other: "<server_id>::<tool>". cosine: of their texts."""

    tool: str
    other: str
    cosine: float
    tells_apart: str


def find_lookalikes(
    server_id: str, contracts: Mapping[str, Contract], router: Router, base: Embedder
) -> list[LookAlike]:
    """Tools of the router's index, of other servers, that are look-alikes of these contracts as the
    asset `confusables` judges it (not twins: their text is the same). `base` is MiniLM, on whose
    scale likeness is read."""
    rows = [make_row(server_id, contract) for contract in contracts.values()]
    others: dict[str, dict[str, Any]] = {}
    for contract in contracts.values():
        others |= find_neighbours(tool_text(contract), router, server_id)
    rows += others.values()
    if not rows:
        return []
    matrix = base.embed([tool_text(json.loads(row["contract"])) for row in rows])
    lookalikes = []
    for pair in find_confusables(rows, matrix):
        sides = [(pair["server_id"], pair["tool"]), (pair["other_server_id"], pair["other_tool"])]
        own_sides = [side for side in sides if side[0] == server_id]
        if pair["kind"] == CONFUSABLE and len(own_sides) == 1:
            (other,) = (side for side in sides if side[0] != server_id)
            name = "::".join(other)
            lookalikes.append(LookAlike(own_sides[0][1], name, pair["cosine"], pair["tells_apart"]))
    return sorted(
        lookalikes, key=lambda lookalike: (lookalike.tool, -lookalike.cosine, lookalike.other)
    )


def find_neighbours(text: str, router: Router, server_id: str) -> dict[str, dict[str, Any]]:
    """Tool id -> snapshot row of the tools that a search for a text shows, the server's own left
    out."""
    try:
        hits = router.find(ToolQuery(text, k=_NEAREST)).hits
    except BadQuery:
        return {}
    index = router.index
    return {
        hit.tool_id: make_row(hit.server_id, index.contract(index.places[hit.tool_id]))
        for hit in hits
        if hit.server_id != server_id
    }


def make_row(server_id: str, contract: Contract) -> dict[str, Any]:
    return {
        "server_id": server_id,
        "tool": contract["name"],
        "contract_digest": contract_digest(contract),
        "contract": json.dumps(contract, ensure_ascii=False),
        "marketplace": "contract ci",
    }


def list_new(before: Iterable[LookAlike], after: Iterable[LookAlike]) -> list[LookAlike]:
    """Those of `after` whose pair was none before."""
    known_pairs = {(lookalike.tool, lookalike.other) for lookalike in before}
    return [
        lookalike for lookalike in after if (lookalike.tool, lookalike.other) not in known_pairs
    ]
