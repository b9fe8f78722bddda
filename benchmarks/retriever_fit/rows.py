"""Query sets, and tools of a marketplace's list, as rows of a retriever's training."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
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
from benchmarks.retriever_fit.recipe import DESCRIPTIONS, REQUESTS, WRITTEN, Recipe
from benchmarks.router_fit.sets import FIT, QuerySet, Request, draw_key
from benchmarks.shared_data import read_corpus
from training.sets.split import TEST, TRAIN, split_of

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


_FURNITURE = ("Claim Server", "Deploy Server", "Try in Playground")  # of the page, not the tool
_ALIKE = 60  # characters: a description that begins as another one is a copy of it
_SHORT, _LONG = 25, 240  # characters of a sentence that says something and is a request's length
_BARE = 12  # characters of a tool without its description: a name of two words
_REQUESTS = Path(__file__).with_name("requests.jsonl")
GRAMMAR = Path(__file__).with_name("grammar_requests.jsonl")


def make_listed_rows(name: str, data: Path, recipe: Recipe) -> tuple[list[Row], dict[str, Row]]:
    """(rows of the training, pool of the negatives by contract digest) of WRITTEN, REQUESTS or
    DESCRIPTIONS."""
    servers = [s for s in _read_servers(data) if split_of(s["qualified_name"]) != TEST]
    if name == WRITTEN:
        return join_written(servers, read_written(), recipe)
    if name == REQUESTS:
        return join_offline(servers, read_written(GRAMMAR), recipe)
    if name == DESCRIPTIONS:
        return describe_servers(servers, recipe)
    raise ValueError(f"unknown list {name!r}: expected {WRITTEN}, {REQUESTS} or {DESCRIPTIONS}")


def read_written(path: Path = _REQUESTS) -> list[Row]:
    """Rows {tool_id, requests: style -> text}, written for this project."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def join_written(
    servers: list[Row], written: list[Row], recipe: Recipe
) -> tuple[list[Row], dict[str, Row]]:
    """Written requests against the tools of these servers; negatives are siblings alone, which the
    writer told apart, for another server's tool may do the same."""
    asked = defaultdict(list)
    for row in written:
        tool = row["tool_id"]
        made = [Request(text, (tool,)) for text in row["requests"].values()]
        asked[ToolId.parse(tool).server_id] += made
    rows, pool = [], {}
    for server in servers:
        if requests := asked.get(server["qualified_name"]):
            query_set = QuerySet(WRITTEN, (server,), tuple(requests))
            own, near = make_rows(query_set, replace(recipe, cap=len(requests)))
            rows += own
            pool |= near
    return rows, pool


def join_offline(
    servers: list[Row], made: list[Row], recipe: Recipe
) -> tuple[list[Row], dict[str, Row]]:
    """Requests of the offline grammar, one for each of a few tools of these servers."""
    asked = {row["tool_id"]: row["requests"]["offline"] for row in made}
    known = {ToolId.parse(tool).server_id for tool in asked}
    kept = tuple(server for server in servers if server["qualified_name"] in known)
    names = {server["qualified_name"] for server in kept}
    requests = tuple(
        Request(text, (tool,))
        for tool, text in asked.items()
        if ToolId.parse(tool).server_id in names
    )
    return make_rows(QuerySet(REQUESTS, kept, requests), replace(recipe, cap=len(requests)))


def describe_servers(servers: list[Row], recipe: Recipe) -> tuple[list[Row], dict[str, Row]]:
    """A tool's first sentence against its name and parameters; negatives are its siblings."""
    rows, pool, seen = [], {}, set[str]()
    for server in servers:
        mine = [
            pair
            for contract in _read_contracts_listed(server)
            if (pair := _cut_sentence(contract, seen))
        ]
        named = {contract_digest(bare): bare for _, bare in mine[: recipe.sentences_a_server]}
        for sentence, bare in mine[: recipe.sentences_a_server]:
            own = contract_digest(bare)
            near = [key for key in named if key != own][: recipe.near]
            pool |= {key: {"contract": named[key], "split": TRAIN} for key in near}
            rows.append({
                "set": DESCRIPTIONS,
                "instruction": sentence,
                "positive": tool_text(bare),
                "contract_digest": own,
                "contract": {"name": bare["name"], "description": ""},
                "negatives": json.dumps(near),
                "calls": json.dumps([{"contract_digest": own}]),
                "split": TRAIN,
            })  # fmt: skip
    return rows, pool


def _cut_sentence(contract: Row, seen: set[str]) -> tuple[str, Row] | None:
    """(first sentence of the description, the contract without it), where both say something."""
    sentence = re.split(r"(?<=[.!?])\s|\n", contract["description"].strip())[0].strip()
    bare = {**contract, "description": ""}
    if not _SHORT <= len(sentence) <= _LONG or len(tool_text(bare)) < _BARE:
        return None
    if sentence[:_ALIKE] in seen:
        return None
    seen.add(sentence[:_ALIKE])
    return sentence, bare


def _read_servers(data: Path) -> Iterator[Row]:
    asked = {ToolId.parse(row["tool_id"]).server_id for row in read_corpus(data)}
    lines = (data / "smithery" / "servers.jsonl").read_text(encoding="utf-8").splitlines()
    listed = [server for server in map(json.loads, lines) if server["qualified_name"] not in asked]
    yield from sorted(listed, key=lambda server: draw_key("listed", server["qualified_name"]))


def _read_contracts_listed(server: Row) -> list[Row]:
    """Canonical contracts of the tools that an English sentence describes, in a drawn order."""
    out = []
    for tool in sorted(
        server["tools"], key=lambda t: draw_key(server["qualified_name"], t["name"])
    ):
        about = tool.get("description") or ""
        if len(about) < _SHORT or not about.isascii() or any(w in about for w in _FURNITURE):
            continue
        schema = tool.get("inputSchema") or {"type": "object"}
        try:
            out.append(canonicalize_contract({**tool, "inputSchema": schema}))
        except ContractError:
            continue
    return out
