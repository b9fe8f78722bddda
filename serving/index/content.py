"""What a version of the index is named by and made of: its source in one order."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from assets.contracts.history.moves import write_history
from assets.contracts.tool_id import ToolId
from assets.vectors.texts import split_id
from serving.index.model import DESCRIPTION, FORMAT, UNVERIFIED, Server, Source, Tool
from warehouse.storage.digest import digest

_ASKED_MOST = 8  # requests of one contract that become vectors


@dataclass(frozen=True)
class Content:
    """A source in its one order: what the version is named by and made of."""

    tools: list[Tool]
    contracts: list[dict[str, Any]]
    servers: list[Server]
    asked: list[tuple[int, str]]  # place of the tool, request
    recipes: dict[str, Mapping[str, Any]]
    moves: bytes = b""  # the file of contract history; empty where nothing moved


def order_content(source: Source) -> Content:
    """Tools ordered by id; a tool listed on several marketplaces is one tool."""
    found: dict[str, tuple[Tool, dict[str, Any]]] = {}
    for row in sorted(source.rows, key=_order_key):
        tool_id = str(ToolId.of_row(row))
        if tool_id in found:
            known, contract = found[tool_id]
            where = tuple(sorted({*known.marketplaces, row["marketplace"]}))
            flags = tuple(sorted({*known.flags, *(row.get("flags") or ())}))
            found[tool_id] = (
                Tool(**{**vars(known), "marketplaces": where, "flags": flags}),
                contract,
            )
            continue
        contract = parse_contract(row)
        found[tool_id] = _make_tool(row, tool_id, contract), contract
    ids = sorted({tool.server_id for tool, _ in found.values()})
    place = {server_id: at for at, server_id in enumerate(ids)}
    tools = [Tool(**{**vars(t), "server": place[t.server_id]}) for t, _ in found.values()]
    asked = [
        (at, text)
        for at, tool in enumerate(tools)
        for text in list(source.instructions.get(tool.contract_digest, ()))[:_ASKED_MOST]
        # A copy that nobody launched would take the requests of the tool it copies.
        if text.strip() and UNVERIFIED not in tool.flags
    ]
    recipes = {name: source.recipes[name] for name in ids if name in source.recipes}
    servers = [_make_server(name, source.servers.get(name, {})) for name in ids]
    contracts, moves = [c for _, c in found.values()], source.moves
    moved = write_history(moves) if moves else b""
    return Content(tools, contracts, servers, asked, recipes, moved)


def compute_version(content: Content, embedder: str, release: str, reranker: str | None) -> str:
    """The name of the index these inputs make: by what went in, not by floating-point rounding."""
    facts = {
        "format": FORMAT,
        "tools": [asdict(tool) for tool in content.tools],
        "contracts": digest(content.contracts),
        "servers": [asdict(server) for server in content.servers],
        "asked": [[place, text] for place, text in content.asked],
        "recipes": content.recipes,
        "embedder": embedder,
        "release": release,
        "reranker": reranker,
        **({"moves": content.moves.decode()} if content.moves else {}),
    }
    return digest(facts)


def parse_contract(row: Mapping[str, Any]) -> dict[str, Any]:
    """The contract in a snapshot row, where it is stored as JSON text."""
    held = row["contract"]
    return json.loads(held) if isinstance(held, str) else dict(held)


def _order_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["server_id"], row["tool"], row["marketplace"], row["contract_digest"]


def _make_tool(row: Mapping[str, Any], tool_id: str, contract: Mapping[str, Any]) -> Tool:
    hint = (contract.get("annotations") or {}).get("readOnlyHint")
    return Tool(
        tool_id=tool_id,
        server_id=row["server_id"],
        tool=row["tool"],
        description=contract.get("description", "")[:DESCRIPTION],
        contract_digest=row["contract_digest"],
        marketplaces=(row["marketplace"],),
        flags=tuple(sorted(row.get("flags") or ())),
        read_only=hint if isinstance(hint, bool) else None,
    )


def _make_server(server_id: str, facts: Mapping[str, str]) -> Server:
    name = facts.get("name") or split_id(server_id)
    return Server(server_id, name, facts.get("description") or "", facts.get("summary") or "")
