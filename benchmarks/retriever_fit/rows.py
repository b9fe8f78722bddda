"""Query sets as rows of a retriever's training: fit sides alone, every set with a cap.

A tool of a server without a request of the fit side is neither a right answer nor a negative: its
side is not known, and nothing of a test side may be learnt from.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from assets.contracts.canonical import (
    ContractError,
    canonicalize_contract,
    contract_digest,
    tool_text,
)
from assets.contracts.tool_id import ToolId
from assets.vectors.lexical import BM25
from benchmarks.retriever_fit.recipe import Recipe
from benchmarks.router_fit.sets import FIT, QuerySet, Request, draw_key
from training.sets.split import TRAIN

Row = dict[str, Any]
FULL, BRIEF = "full", "brief"


def make_rows(found: QuerySet, recipe: Recipe) -> tuple[list[Row], dict[str, Row]]:
    """(rows of the training, pool of the negatives by contract digest) of one set."""
    requests = [request for request in found.requests if request.side == FIT]
    contracts = _read_contracts(found, {request.server for request in requests})
    asked = draw_requests(requests, recipe, found.name)
    pairs = [(r, tool) for r in asked for tool in draw_tools(r, recipe) if tool in contracts]
    near = find_near_tools({tool for _, tool in pairs}, contracts, recipe.near)
    rows, taken = [], defaultdict(int)
    for request, tool in pairs:
        if taken[tool] < recipe.pairs_a_tool:
            taken[tool] += 1
            rows.append(_make_row(found.name, request, tool, contracts, near[tool]))
    used = {name for row in rows for name in json.loads(row["negatives"])}
    digests = {contract_digest(contract): contract for contract in contracts.values()}
    pool = {name: {"contract": digests[name], "split": TRAIN} for name in sorted(used)}
    return rows, pool


def draw_requests(requests: Sequence[Request], recipe: Recipe, name: str) -> list[Request]:
    """At most the set's cap of requests that are not longer than what is read of them."""
    short = [r for r in requests if len(r.text) <= recipe.longest]
    order = sorted(short, key=lambda r: draw_key("learn", f"{r.lang}|{r.text}"))
    return order[: recipe.caps.get(name, recipe.cap)]


def draw_tools(request: Request, recipe: Recipe) -> list[str]:
    """The right tools that a request is paired with, drawn by digest."""
    order = sorted(request.gold, key=lambda tool: draw_key(request.text, tool))
    return order[: recipe.tools_a_request]


def find_near_tools(tools: set[str], contracts: dict[str, Row], most: int) -> dict[str, list[str]]:
    """Tool -> digests of the other tools whose words are nearest to its own, by BM25."""
    ids = sorted(contracts)
    index = BM25.build([tool_text(contracts[tool]) for tool in ids], stemmed=True)
    out = {}
    for tool in sorted(tools):
        scores = index.score(tool_text(contracts[tool], BRIEF))
        order = np.argsort(-scores, kind="stable")[: most + 1]
        near = [ids[at] for at in order if ids[at] != tool and scores[at] > 0][:most]
        out[tool] = [contract_digest(contracts[name]) for name in near]
    return out


def choose_view(request: Request, tool: str) -> str:
    """Two pairs in three teach the text that an index holds, one the text without parameters."""
    return BRIEF if int(draw_key("view", f"{tool}|{request.text}")[:8], 16) % 3 == 0 else FULL


def _make_row(
    name: str, request: Request, tool: str, contracts: dict[str, Row], near: list[str]
) -> Row:
    contract = contracts[tool]
    view = choose_view(request, tool) if contract.get("description") else FULL
    named = [contract_digest(contracts[other]) for other in request.gold if other in contracts]
    right = [
        {"contract_digest": key} for item in named for key in (item, *_name_views(item).values())
    ]
    return {
        "set": name,
        "instruction": request.text,
        "positive": tool_text(contract, view),
        # A view is a text of its own; equal names and descriptions make views twins.
        "contract_digest": _name_views(contract_digest(contract))[view],
        "contract": {key: contract.get(key, "") for key in ("name", "description")},
        "negatives": json.dumps(near),
        "calls": json.dumps(right),
        "split": TRAIN,
    }


def _name_views(digest: str) -> dict[str, str]:
    return {view: f"{digest}:{view}" for view in (FULL, BRIEF)}


def _read_contracts(found: QuerySet, servers: set[str]) -> dict[str, Row]:
    """Tool id -> canonical contract, of these servers."""
    out = {}
    for server in found.servers:
        if server["qualified_name"] not in servers:
            continue
        for tool in server["tools"]:
            schema = tool.get("inputSchema") or {"type": "object"}
            try:
                made = canonicalize_contract({**tool, "inputSchema": schema})
            except ContractError:
                continue
            out[str(ToolId(server["qualified_name"], tool["name"]))] = made
    return out
