"""Ranks of FastMCP's own BM25 search transform. Runs under a Python that has `fastmcp`, and alone:

    /tmp/fastmcp-venv/bin/python benchmarks/router_fastmcp.py asked.json ranks.json

asked.json: {tools: [{server, name, description, inputSchema}], queries: [...], k}. ranks.json:
{version, ms, namespaced: [[place, ...], ...], bare: [...]}. `namespaced` names each tool as a
mounted server of FastMCP does (`<server>_<tool>`: names must be unique there); `bare` ranks the
tools' own names by the same index.
"""

import asyncio
import json
import logging
import re
import statistics
import sys
import time
from importlib.metadata import version
from typing import Any

_TIMED = 20  # queries whose whole search is timed: the transform hashes the catalogue each time


def main() -> None:
    logging.disable(logging.WARNING)  # one warning a tool name beyond the specification's letters
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    queries, k = asked["queries"], asked["k"]
    found: dict[str, Any] = {"version": version("fastmcp")}
    for naming in ("namespaced", "bare"):
        transform, took = asyncio.run(_search_all(asked["tools"], queries[:_TIMED], k, naming))
        found[naming] = [transform._index.query(query, k) for query in queries]
        found[f"{naming}_ms"] = round(statistics.median(took) * 1000, 1) if took else None
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(found, file)


async def _search_all(
    tools: list[dict[str, Any]], queries: list[str], k: int, naming: str
) -> tuple[Any, list[float]]:
    """The transform after it searched these tools, and the seconds of each search but the first."""
    from fastmcp.server.transforms.search import BM25SearchTransform  # pyright: ignore
    from fastmcp.tools.base import Tool  # pyright: ignore

    given = [
        Tool(
            name=_add_namespace(tool) if naming == "namespaced" else tool["name"],
            description=tool["description"] or None,
            parameters=tool["inputSchema"],
        )
        for tool in tools
    ]
    transform = BM25SearchTransform(max_results=k)
    took = []
    for query in queries:
        began = time.perf_counter()
        await transform._search(given, query)
        took.append(time.perf_counter() - began)
    return transform, took[1:]


def _add_namespace(tool: dict[str, Any]) -> str:
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', tool['server']).strip('_')}_{tool['name']}"


if __name__ == "__main__":
    main()
