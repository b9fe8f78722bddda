"""An index of MCP-Zero's data file, for `toolmill index --mcp-zero`."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.encoders.endpoint import EndpointEncoder
from assets.vectors.encoders.saved import save_encoder
from assets.vectors.texts import build_server_views, build_tool_views
from extensions.bench.mcp_zero_data import McpZeroDataset, read_dataset
from serving.adhoc import read_source
from serving.index.build import build_index, move_pointer, order_content
from serving.index.model import IndexSource
from warehouse.errors import UnusableInput
from warehouse.storage.files import write_atomically

MADE_BY = "openai:text-embedding-3-large"  # the vectors of the published file
_SHOWN = 50  # reasons that are listed


def load_dataset(path: Path, out: Path, made_by: str = MADE_BY) -> dict[str, Any]:
    """Writes what a file in MCP-Zero's format holds to the folder `out`. made_by: what its vectors
    were made by, as `toolmill index --embedder` takes it.

    Returns {servers, renamed, tools, vectors, embedder, version, out, skipped}; `version` is None
    where a vector is missing: `toolmill index` makes vectors of one's own. Raises UnusableInput.
    """
    dataset = read_dataset(path)
    lines = [
        json.dumps(
            {
                "qualified_name": server.name,
                "description": server.description,
                "summary": server.summary,
                "tools": server.tools,
                "unverified": True,
            }
        )
        for server in dataset.servers
    ]
    servers = out / "servers.jsonl"
    write_atomically(servers, ("\n".join(lines) + "\n").encode())
    source, unusable = read_source(servers)
    report = {
        "servers": len(dataset.servers),
        "renamed": dataset.renamed,
        "tools": len(source.rows),
        "vectors": sum(
            len(server.vectors) + len(server.tool_vectors) for server in dataset.servers
        ),
        "embedder": None,
        "version": None,
        "out": str(out),
    }
    if dataset.whole:
        with path.open("rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()
        report |= _build_by_vectors(dataset, source, out, made_by, name)
    skipped = [*dataset.skipped, *unusable]
    more = [f"… {len(skipped) - _SHOWN} more"] if len(skipped) > _SHOWN else []
    return {**report, "skipped": [*skipped[:_SHOWN], *more]}


def _build_by_vectors(
    found: McpZeroDataset, source: IndexSource, out: Path, made_by: str, name: str
) -> dict[str, Any]:
    encoder = _find_encoder(found, made_by)
    if found.embedder not in (None, encoder.id):
        raise UnusableInput(
            f"the file says that its vectors are by {found.embedder!r:.80}, not by {encoder.id};"
            " say what made them with --embedder (a file exported here by default: general)"
        )
    known = _map_texts(found, source)

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.stack([known[text] for text in texts])

    save_encoder(encoder, out)
    version = build_index(out, source, embed, embedder=encoder.id, release=f"mcp-zero-{name[:12]}")
    move_pointer(out, version)
    return {"embedder": encoder.id, "version": version}


def _find_encoder(found: McpZeroDataset, made_by: str) -> Embedder:
    """What a question is embedded by. Raises UnusableInput where its vectors have another size."""
    kind, _, name = made_by.partition(":")
    if kind == "openai" and name:
        model, at, where = name.partition("@http")
        # Nothing is sent: the vectors are there. A question is, and takes the user's own key.
        return EndpointEncoder(
            model, base_url=f"http{where}" if at else None, api_key="unused", dim=found.dim
        )
    encoder = open_embedder(made_by)
    if encoder.dim != found.dim:
        raise UnusableInput(
            f"--embedder {made_by[:80]}: its vectors have {encoder.dim} numbers, those of the file"
            f" {found.dim}; name the model that made them"
        )
    return encoder


def _map_texts(found: McpZeroDataset, source: IndexSource) -> dict[str, np.ndarray]:
    """What the index embeds of each tool and server -> the file's vector of it."""
    entries = {server.name: server for server in found.servers}
    content = order_content(source)
    held: dict[int, list[dict[str, Any]]] = {}
    result: dict[str, np.ndarray] = {}
    for tool, contract in zip(content.tools, content.contracts, strict=True):
        held.setdefault(tool.server, []).append(contract)
        vector = entries[tool.server_id].tool_vectors[tool.tool]
        for text in build_tool_views(contract).values():
            result.setdefault(text, vector)
    for at, server in enumerate(content.servers):
        views = build_server_views(server.name, server.description, server.summary, held[at])
        vectors = entries[server.server_id].vectors
        result.setdefault(views["server"], vectors["description"])
        result.setdefault(views["summary"], vectors["summary"])
    return result
