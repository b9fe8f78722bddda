"""Exporting an index in MCP-Zero's data format, with the vectors that it searches by."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.texts import FULL, SERVER_VIEWS
from extensions.bench.mcp_zero.parameters import write_parameters
from serving.index.folder import load_index, read_served_version
from serving.index.model import RouterIndex
from serving.ranking.overlays import ToolEligibility, read_blocked
from warehouse.errors import UnusableInput
from warehouse.storage.files import write_atomically

_SERVER_VECTORS = dict(zip(("description", "summary"), SERVER_VIEWS, strict=True))


def export_dataset(place: Path, out: Path) -> dict[str, Any]:
    """Writes the served index of `place` as one file in MCP-Zero's format. What is held is left
    out, and so are unverified tools: the format has no place for that mark.

    Returns {version, embedder, servers, tools, left_out, bytes, out}. Raises UnusableInput where
    nothing is left, IndexMissing, IndexBroken.
    """
    if out.is_dir():
        raise UnusableInput(f"{out}: it is a folder; give the path of a file")
    index = load_index(place, read_served_version(place))
    held = _select_tools(index, place)
    if not held:
        raise UnusableInput(f"{place}: no tool that was launched is in its index; nothing to write")
    rows = [_write_server(index, at, tools) for at, tools in sorted(held.items())]
    body = b"[" + b",\n".join(rows) + b"]\n"
    write_atomically(out, body)
    count = sum(map(len, held.values()))
    return {
        "version": index.version,
        "embedder": index.embedder,
        "servers": len(held),
        "tools": count,
        "left_out": len(index.tools) - count,
        "bytes": len(body),
        "out": str(out),
    }


def _select_tools(index: RouterIndex, place: Path) -> dict[int, list[int]]:
    """Place of a server -> places of its tools that may leave."""
    mask = ToolEligibility(index, read_blocked(place)).mask(None, ())
    held: dict[int, list[int]] = defaultdict(list)
    for at, tool in enumerate(index.tools):
        if not tool.unverified and (mask is None or mask[at]):
            held[tool.server].append(at)
    return held


def _write_server(index: RouterIndex, at: int, tools: Sequence[int]) -> bytes:
    server = index.servers[at]
    vectors = {
        f"{part}_embedding": _write_vector(index, view, at)
        for part, view in _SERVER_VECTORS.items()
    }
    row = {
        "server_name": server.server_id,  # a name is not one server's alone
        "server_summary": server.summary,
        "server_description": server.description,
        **vectors,
        "tools": [_write_tool(index, place) for place in tools],
        "embedder": index.embedder,
    }
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")


def _write_tool(index: RouterIndex, at: int) -> dict[str, Any]:
    contract = index.contract(at)
    return {
        "name": contract["name"],
        "description": contract.get("description", ""),
        "description_embedding": _write_vector(index, FULL, at),
        "parameter": write_parameters(contract),
    }


def _write_vector(index: RouterIndex, view: str, at: int) -> list[float]:
    """The vector of a tool or server, to seven digits: as many as a float32 has."""
    vectors = index.views[view].vectors
    return [float(f"{number:.7g}") for number in np.asarray(vectors[at]).tolist()]
