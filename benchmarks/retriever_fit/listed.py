"""Pairs out of a marketplace's list, of servers that no set asks: requests that a language model
wrote for them (`requests.jsonl`), requests by the offline grammar (`grammar_requests.jsonl`, as it
wrote them on 2026-11-26: kept, for it changes), and first sentences of descriptions against the
tools without them.

Servers of the corpus and test servers are left out whole. The writers saw a server's tools (name,
description, parameters) and two of six styles for each, and no query set.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from assets.contracts.canonical import (
    ContractError,
    canonicalize_contract,
    contract_digest,
    tool_text,
)
from assets.contracts.tool_id import ToolId
from benchmarks.retriever_fit.recipe import DESCRIPTIONS, REQUESTS, WRITTEN, Recipe
from benchmarks.retriever_fit.rows import Row, make_rows
from benchmarks.router_fit.sets import QuerySet, Request, draw_key
from benchmarks.shared_data import read_corpus
from training.sets.split import TEST, TRAIN, split_of

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
            pair for contract in _read_contracts(server) if (pair := _cut_sentence(contract, seen))
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


def _read_contracts(server: Row) -> list[Row]:
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
