"""FastMCP's BM25 search transform as one more strategy, by its own Python.

`python -m venv DIR && DIR/bin/pip install fastmcp`, then `--fastmcp-python DIR/bin/python`.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.router_fit.sets import Request
from serving.index.model import RouterIndex

NAME = "fastmcp"
_SCRIPT = Path(__file__).with_name("fastmcp_ranks.py")


def rank_by_fastmcp(
    python: Path, index: RouterIndex, requests: Sequence[Request], k: int
) -> list[np.ndarray]:
    """Places of the index's tools for each request, best first, at most k. Tools are named
    `<server>_<tool>`, as a mounted server's are. Raises CalledProcessError without fastmcp."""
    asked = {
        "tools": [_write_tool(index, at) for at in range(len(index.tools))],
        "queries": [request.text for request in requests],
        "k": k,
    }
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "asked.json"), Path(folder, "ranks.json")
        given.write_text(json.dumps(asked), encoding="utf-8")
        subprocess.run([str(python), str(_SCRIPT), str(given), str(found)], check=True)
        ranks = json.loads(found.read_bytes())["ranks"]
    return [np.array(row, int) for row in ranks]


def _write_tool(index: RouterIndex, at: int) -> dict[str, object]:
    tool, contract = index.tools[at], index.contract(at)
    server = re.sub(r"[^A-Za-z0-9]+", "_", tool.server_id).strip("_")
    return {
        "name": f"{server}_{tool.tool}",
        "description": contract.get("description", ""),
        "inputSchema": contract.get("inputSchema") or {"type": "object"},
    }
