"""How long `Router.find` takes, beside a raw matrix product and MCP-Zero's loop, and its memory.

python -m benchmarks.router_latency --home DIR --size 12600     one size, as JSON
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import Embedder, MiniLM, open_encoder, save_encoder
from benchmarks import router_peers as peers
from benchmarks.router_data import corpus_rows, smithery
from benchmarks.router_grown import cheap_embed, grown
from benchmarks.router_index import source_of
from benchmarks.router_vectors import Kept
from serving.index.folder import build_index, load_index
from serving.index.model import Index
from serving.ranking.hot_reload import QUERY_TOKENS
from serving.router import Ask, Router

_WARM = 20
_LOOPS = 5  # MCP-Zero's loop takes a good part of a second


def latency(asked: argparse.Namespace) -> dict[str, Any]:
    """One subprocess a size, so that one size's memory is not another's."""
    rows = []
    for size in asked.pool_sizes:
        told = [sys.executable, "-m", "benchmarks.router_latency", "--home", str(asked.home)]
        told += ["--size", str(size), "--asked", str(asked.asked), "--threads", str(asked.threads)]
        env = _one_thread(asked)
        subprocess.run([*told, "--build"], check=True, env=env)  # its memory is no router's
        done = subprocess.run(told, stdout=subprocess.PIPE, check=True, env=env)
        rows.append(json.loads(done.stdout))
    return {"rows": rows}


def measure(home: Path, size: int, count: int, threads: int) -> dict[str, Any]:
    """{find, search, raw product of one view and of all, MCP-Zero's loop: ms; memory: MB}."""
    texts = [row["instruction"] for row in corpus_rows()]
    texts = [texts[at] for at in np.random.default_rng(1).permutation(len(texts))[:count]]
    base = MiniLM(threads=threads)
    save_encoder(base, home)
    name = base.id
    del base  # its bytes are no part of what serves
    model = open_encoder(home, name, threads=threads, most_tokens=QUERY_TOKENS)  # as served
    model.embed(texts[:1])
    before = _rss()
    index = load_index(home / "index", build(home, size, model))
    router = Router(index, model)
    router.find(Ask(query=texts[0]))
    memory = {"rss_mb": _rss(), "index_mb": round(_rss() - before, 1)}
    row: dict[str, Any] = {"tools": len(index.tools), "servers": len(index.servers), **memory}
    row["load_average"] = os.getloadavg()[0]
    row["find"] = _times(lambda text: router.find(Ask(query=text)), texts)
    kept = Kept(model, home)
    kept.embed(texts)
    known = Router(index, kept)
    row["search"] = _times(lambda text: known.find(Ask(query=text)), texts)
    row["encode"] = _times(lambda text: model.embed([text]), texts)
    vectors = {text: kept.embed([text])[0] for text in texts}
    row |= _products(index, vectors, texts)
    row["rss_after_mb"] = _rss()
    row["MCP-Zero's loop"] = _times(_loop(index, vectors), texts[: _WARM + _LOOPS])
    for name in ("one product", "all products"):
        row[f"search / {name}"] = round(row["search"]["cpu p50"] / row[name]["cpu p50"], 2)
    return row


def build(home: Path, size: int, model: Embedder) -> str:
    """The version of the index of that size, built once."""
    place, mark = home / "index", home / "index" / f"grown-{size}.json"
    if not mark.exists():
        base = smithery()
        pool = grown(base, size)
        source = source_of(pool)
        embed = cheap_embed(pool, base, source, Kept(model, home).embed)
        version = build_index(place, source, embed, embedder=model.id)
        mark.write_text(json.dumps({"version": version, "embedder": model.id}))
    return json.loads(mark.read_bytes())["version"]


def _products(
    index: Index, vectors: dict[str, np.ndarray], texts: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The query times the matrix of the full view, and times those of every view."""
    views = {name: np.asarray(view.vectors) for name, view in index.views.items()}
    full = views["full"]
    return {
        "one product": _times(lambda text: full @ vectors[text], texts),
        "all products": _times(
            lambda text: [matrix @ vectors[text] for matrix in views.values()], texts
        ),
    }


def _loop(index: Index, vectors: dict[str, np.ndarray]) -> Callable[[str], Any]:
    full, described = index.views["full"].vectors, index.views["server"].vectors
    summarised = index.views["summary"].vectors
    servers: list[dict[str, Any]] = [
        {"description": d.tolist(), "summary": s.tolist(), "tools": []}
        for d, s in zip(described, summarised, strict=True)
    ]
    for at, tool in enumerate(index.tools):
        servers[tool.server]["tools"].append((at, full[at].tolist()))
    return lambda text: peers.mcp_zero_loop(vectors[text].tolist(), servers, 5)


def _times(run: Callable[[str], Any], texts: Sequence[str]) -> dict[str, float]:
    """Milliseconds: p50, p95, p99 over the texts, after some to warm up; and p50 and p95 of the
    processor's time, which others' work on the machine moves less."""
    took, worked = [], []
    for text in [*texts[:_WARM], *texts] if len(texts) > 2 * _WARM else texts:
        began, busy = time.perf_counter(), time.process_time()
        run(text)
        worked.append((time.process_time() - busy) * 1000)
        took.append((time.perf_counter() - began) * 1000)
    p50, p95, p99 = np.quantile(took[_WARM:], [0.5, 0.95, 0.99])
    cpu50, cpu95 = np.quantile(worked[_WARM:], [0.5, 0.95])
    found = {"p50": p50, "p95": p95, "p99": p99, "cpu p50": cpu50, "cpu p95": cpu95}
    return {**{name: round(float(ms), 3) for name, ms in found.items()}, "n": len(took) - _WARM}


def _rss() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def _one_thread(asked: argparse.Namespace) -> dict[str, str]:
    count = str(asked.threads)
    return {**os.environ, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--asked", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--build", action="store_true", help="only build the index")
    asked = parser.parse_args()
    if asked.build:
        build(asked.home, asked.size, MiniLM(threads=asked.threads))
        return
    print(json.dumps(measure(asked.home, asked.size, asked.asked, asked.threads)))


if __name__ == "__main__":
    main()
