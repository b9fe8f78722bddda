"""Ranks of FastMCP's own BM25 search transform. Runs under a Python that has `fastmcp`, and alone:

    <its python> benchmarks/router_fit/fastmcp_ranks.py asked.json ranks.json

asked.json: {tools: [{name, description, inputSchema}], queries: [...], k}, names unique, as a
mounted server of FastMCP gives them. ranks.json: {version, ranks: [[place, ...], ...]}.
"""

import asyncio
import json
import logging
import sys
from importlib.metadata import version
from typing import Any


def main() -> None:
    logging.disable(logging.WARNING)  # one warning a tool name beyond the specification's letters
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    ranks = asyncio.run(rank_tools(asked["tools"], asked["queries"], asked["k"]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump({"version": version("fastmcp"), "ranks": ranks}, file)


async def rank_tools(tools: list[dict[str, Any]], queries: list[str], k: int) -> list[list[int]]:
    """Places of the tools for each query, best first, at most k."""
    from fastmcp.server.transforms.search import BM25SearchTransform  # pyright: ignore
    from fastmcp.tools.base import Tool  # pyright: ignore

    given = [
        Tool(
            name=tool["name"],
            description=tool["description"] or None,
            parameters=tool["inputSchema"],
        )
        for tool in tools
    ]
    transform = BM25SearchTransform(max_results=k)
    await transform._search(given, queries[0])  # it hashes the catalogue in each search: once here
    return [transform._index.query(query, k) for query in queries]


if __name__ == "__main__":
    main()
