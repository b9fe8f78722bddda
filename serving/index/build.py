"""Writing one version of the index: every file, or nothing."""

import io
import json
import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import iterate_parameters
from assets.contracts.rename_history import HISTORY_FILE, write_history
from assets.contracts.tool_id import ToolId
from assets.vectors.lexical import BM25
from assets.vectors.texts import (
    ASKED,
    PLAIN_FIELDS,
    SERVER_FIELD,
    SERVER_VIEWS,
    TOOL_FIELDS,
    TOOL_VIEWS,
    build_server_field,
    build_server_views,
    build_tool_fields,
    build_tool_views,
    split_id,
)
from serving.index.model import (
    DESCRIPTION,
    FORMAT,
    RERANKER_FILE,
    SERVER,
    TOOL,
    UNVERIFIED,
    Server,
    Source,
    Tool,
)
from warehouse.storage.digest import digest

_SEPARATORS = re.compile(r"[\W_]+")


def find_twin_places(tools: Sequence[Tool], contracts: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """For each tool the place of the first one that says the same (its own where none does).

    Twins have equal contracts, or one name modulo case and separators, one description (not an
    empty one) and parameters of the same names: text that differs in meaning is never collapsed,
    and an unverified tool is no twin of one that was launched.
    """
    first: dict[Any, int] = {}
    out = np.arange(len(tools), dtype=np.int32)
    for place, (tool, contract) in enumerate(zip(tools, contracts, strict=True)):
        signatures = (tool.contract_digest, _describe_contract(contract))
        keys = [(key, tool.unverified) for key in signatures if key]
        known = [first[key] for key in keys if key in first]
        out[place] = min(known, default=place)
        for key in keys:
            first.setdefault(key, int(out[place]))
    return out


def _describe_contract(contract: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]] | None:
    about = " ".join(contract.get("description", "").split())
    name = _SEPARATORS.sub("", contract["name"].lower())
    if not (about and name):
        return None
    return name, about, tuple(name for name, _ in iterate_parameters(contract))


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


Embed = Callable[[Sequence[str]], np.ndarray]
Step = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


def write_version(
    place: Path,
    content: Content,
    embed: Embed,
    facts: Mapping[str, Any],
    reranker: Path | None,
    progress: Step | None,
) -> None:
    """Writes `<place>/router/<version>/`; the folder appears whole or not at all."""
    target = place / "router" / facts["version"]
    beside = place / "router" / f".{facts['version']}.{uuid.uuid4().hex[:8]}"
    beside.mkdir(parents=True)
    try:
        views = _write_views(beside, content, embed, progress or (lambda *_: None))
        _write_rows(beside, content)
        fields = _write_fields(beside, content)
        if content.moves:
            (beside / HISTORY_FILE).write_bytes(content.moves)
        if reranker is not None:
            shutil.copyfile(reranker, beside / RERANKER_FILE)
        files = {path.name: path.stat().st_size for path in sorted(beside.iterdir())}
        counts = {
            "tools": len(content.tools),
            "servers": len(content.servers),
            "asked": len(content.asked),
            "recipes": len(content.recipes),
        }
        meta = {**facts, "counts": counts, "views": views, "fields": fields, "files": files}
        (beside / "index.json").write_text(json.dumps(meta, indent=1))
        if target.exists():  # a folder without index.json: what a kill left
            shutil.rmtree(target)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_views(
    folder: Path, content: Content, embed: Embed, progress: Step
) -> dict[str, dict[str, Any]]:
    own = [build_tool_views(contract) for contract in content.contracts]
    held: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for tool, contract in zip(content.tools, content.contracts, strict=True):
        held[tool.server].append(contract)
    of_servers = [
        build_server_views(server.name, server.description, server.summary, held[at])
        for at, server in enumerate(content.servers)
    ]
    texts: dict[str, tuple[str, list[str], list[int] | None]]
    texts = {name: (TOOL, [texts[name] for texts in own], None) for name in TOOL_VIEWS}
    texts |= {name: (SERVER, [texts[name] for texts in of_servers], None) for name in SERVER_VIEWS}
    if content.asked:
        owners = [place for place, _ in content.asked]
        texts[ASKED] = (TOOL, [text for _, text in content.asked], owners)
    views = {}
    for done, (name, (level, listed, owners)) in enumerate(texts.items()):
        progress(f"embed {name}", done, len(texts))
        vectors = _embed_once(listed, embed)
        places = np.arange(len(listed)) if owners is None else np.array(owners)
        np.save(folder / f"view-{name}.npy", vectors)
        np.save(folder / f"view-{name}.owner.npy", places.astype(np.int32))
        views[name] = {"level": level, "rows": len(listed)}
    progress("embedded", len(texts), len(texts))
    return views


def _embed_once(texts: Sequence[str], embed: Embed) -> np.ndarray:
    """One vector a text; a text that several tools share is embedded once."""
    unique = list(dict.fromkeys(texts))
    at = {text: row for row, text in enumerate(unique)}
    vectors = np.asarray(embed(unique), np.float32)
    if len(vectors) != len(unique):
        raise ValueError(f"router index: {len(unique)} texts but {len(vectors)} vectors")
    return np.ascontiguousarray(vectors[[at[text] for text in texts]])


def _write_rows(folder: Path, content: Content) -> None:
    _write_lines(folder / "tools.jsonl", [asdict(tool) for tool in content.tools])
    _write_lines(folder / "servers.jsonl", [asdict(server) for server in content.servers])
    recipes = [{"server_id": name, "recipe": of} for name, of in content.recipes.items()]
    _write_lines(folder / "recipes.jsonl", recipes)
    lengths = _write_lines(folder / "contracts.jsonl", content.contracts)
    np.save(folder / "contracts.starts.npy", np.concatenate([[0], np.cumsum(lengths)]))
    np.save(folder / "twins.npy", find_twin_places(content.tools, content.contracts))


def _write_lines(path: Path, rows: Sequence[Any]) -> list[int]:
    """JSON lines; returns the bytes of each, with its line break."""
    lines = [(json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows]
    path.write_bytes(b"".join(lines))
    return [len(line) for line in lines]


def _write_fields(folder: Path, content: Content) -> dict[str, Any]:
    texts = _field_texts(content)
    for name, listed in texts.items():
        index = BM25.build(listed, stemmed=name not in PLAIN_FIELDS)
        buffer = io.BytesIO()
        np.savez(buffer, starts=index.starts, documents=index.documents, weights=index.weights)
        (folder / f"bm25-{name}.npz").write_bytes(buffer.getvalue())
        terms = json.dumps(list(index.terms), ensure_ascii=False)
        (folder / f"bm25-{name}.terms.json").write_text(terms, encoding="utf-8")
    return {
        name: {"size": len(listed), "stemmed": name not in PLAIN_FIELDS}
        for name, listed in texts.items()
    }


def _field_texts(content: Content) -> dict[str, list[str]]:
    servers = [
        build_server_field(s.name, s.description, s.summary, s.server_id) for s in content.servers
    ]
    rows = [
        build_tool_fields(contract, servers[tool.server])
        for tool, contract in zip(content.tools, content.contracts, strict=True)
    ]
    texts = {name: [fields[name] for fields in rows] for name in TOOL_FIELDS}
    texts[SERVER_FIELD] = servers
    if content.asked:
        joined: dict[int, list[str]] = defaultdict(list)
        for place, text in content.asked:
            joined[place].append(text)
        texts[ASKED] = ["\n".join(joined[at]) for at in range(len(content.tools))]
    return texts
