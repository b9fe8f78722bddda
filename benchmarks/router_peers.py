"""The methods that the router is set beside, each as its own source has it.

Every function returns, for each query, places of tools in order, best first. Scores are rounded to
six digits and a tie goes to the earlier tool, so a rank is the same on every machine.
"""

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.lexical import BM25
from warehouse.storage.digest import digest

Ranks = list[list[int]]
_RRF = 60  # the constant of Cormack, Clarke & Büttcher 2009
_RRF_DEPTH = 100
_SERVERS = 5  # MCP-Zero keeps five servers


def rank_dense(asked: np.ndarray, tools: np.ndarray, k: int) -> Ranks:
    """By the cosine of unit vectors."""
    return [take_top(row, k) for row in asked @ tools.T]


def rank_lexical(index: BM25, queries: Sequence[str], k: int) -> Ranks:
    """By BM25; a tool that shares no word with the query is no answer."""
    return [take_top(scores, k, above=0.0) for scores in map(index.score, queries)]


def fuse_ranks(lists: Sequence[Ranks], k: int) -> Ranks:
    """Reciprocal rank fusion of several methods' ranks (of `_RRF_DEPTH` each)."""
    return [_fuse_one(of, k) for of in zip(*lists, strict=True)]


def mcp_zero(
    asked: np.ndarray,
    described: np.ndarray,
    summarised: np.ndarray,
    tools: np.ndarray,
    server_of: np.ndarray,
    k: int,
) -> Ranks:
    """MCP-Zero (arXiv 2506.01056): the five servers with the largest max(cosine to description,
    cosine to summary); their tools by (s * t) * max(s, t). The query is both the server's and the
    tool's request, as nothing but an instruction was asked."""
    servers = np.maximum(asked @ described.T, asked @ summarised.T)
    cosines = asked @ tools.T
    found: Ranks = []
    for s_row, t_row in zip(servers, cosines, strict=True):
        kept = np.isin(server_of, take_top(s_row, _SERVERS))
        s = s_row[server_of]
        found.append(take_top(np.where(kept, (s * t_row) * np.maximum(s, t_row), -np.inf), k))
    return found


def mcp_zero_loop(
    asked: Sequence[float], servers: Sequence[Mapping[str, Any]], k: int
) -> list[tuple[float, int]]:
    """The same by a loop, as its published matcher goes about it: vectors held as Python lists, one
    NumPy cosine at a time, over servers of {description, summary, tools: [(place, vector)]}."""
    best = sorted(
        ((max(_cosine(asked, s["description"]), _cosine(asked, s["summary"])), s) for s in servers),
        key=lambda pair: -pair[0],
    )[:_SERVERS]
    scored = []
    for at, server in best:
        for place, vector in server["tools"]:
            cosine = _cosine(asked, vector)
            scored.append(((at * cosine) * max(at, cosine), place))
    return sorted(scored, reverse=True)[:k]


def rank_fastmcp(
    python: Path, home: Path, tools: Sequence[Mapping[str, Any]], queries: Sequence[str], k: int
) -> dict[str, Any] | None:
    """Ranks of FastMCP's transform {version, namespaced, bare, …_ms}, kept by what was asked; None
    where neither they nor `python` are there. Raises CalledProcessError when it has no fastmcp."""
    given = {"tools": list(tools), "queries": list(queries), "k": k}
    name = f"fastmcp-{digest(given)[:16]}"
    asked, ranks = home / f"{name}-asked.json", home / f"{name}-ranks.json"
    if ranks.exists():
        return json.loads(ranks.read_bytes())
    if not python.exists():
        return None
    asked.write_text(json.dumps(given))
    script = Path(__file__).with_name("router_fastmcp.py")
    beside = ranks.with_suffix(".part")
    subprocess.run([str(python), str(script), str(asked), str(beside)], check=True)
    beside.rename(ranks)
    return json.loads(ranks.read_bytes())


def take_top(scores: np.ndarray, k: int, *, above: float = -math.inf) -> list[int]:
    """Places of the k largest scores above a floor."""
    rounded = np.round(scores, 6)
    fits = np.flatnonzero(rounded > above)
    if len(fits) > k:
        worst = np.partition(-rounded[fits], k - 1)[k - 1]
        fits = fits[-rounded[fits] <= worst]
    return fits[np.lexsort((fits, -rounded[fits]))][:k].tolist()


def _fuse_one(lists: Sequence[Sequence[int]], k: int) -> list[int]:
    scores: dict[int, float] = {}
    for ranked in lists:
        for at, place in enumerate(ranked[:_RRF_DEPTH]):
            scores[place] = scores.get(place, 0.0) + 1 / (_RRF + at + 1)
    return sorted(scores, key=lambda place: (-round(scores[place], 9), place))[:k]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    one, other = np.array(a), np.array(b)
    return float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))
