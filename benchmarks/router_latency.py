"""How long `Router.find` takes, beside a raw matrix product and MCP-Zero's loop, and its memory.

    python -m benchmarks.router_latency [--home DIR] [--sizes 12600 100000]

Prints one JSON object a size.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.tool_id import ToolId
from assets.vectors.embed import Embedder, MiniLM, open_encoder, save_encoder
from assets.vectors.texts import build_tool_views
from benchmarks import router_peers as peers
from benchmarks.router_data import Pool, read_corpus, read_smithery
from benchmarks.router_index import Kept, source_of
from benchmarks.shared_data import SHARED, require_paths
from serving.index.folder import build_index, load_index
from serving.index.model import Index
from serving.ranking.hot_reload import QUERY_TOKENS
from serving.router import Ask, Router
from warehouse.storage.digest import digest

_NOISE = 0.038  # a coordinate's deviation: cosine 0.8 in 384 dimensions
Embed = Callable[[Sequence[str]], np.ndarray]
_WARM = 20
_LOOPS = 5  # MCP-Zero's loop takes a good part of a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("var/router_bench"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[12_600, 100_000])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step", choices=("build", "measure"), help="one, in this process")
    chosen = parser.parse_args()
    require_paths(SHARED / "corpus", SHARED / "smithery")
    [size, *_] = chosen.sizes
    if chosen.step == "build":
        build_grown(chosen.home, size, MiniLM(threads=chosen.threads))
    elif chosen.step == "measure":
        print(json.dumps(measure_size(chosen.home, size, chosen.queries, chosen.threads), indent=1))
    else:
        for size in chosen.sizes:  # a process each: one size's memory is not another's
            for step in ("build", "measure"):
                own = [sys.executable, "-m", "benchmarks.router_latency", "--step", step]
                own += ["--home", str(chosen.home), "--sizes", str(size)]
                own += ["--queries", str(chosen.queries), "--threads", str(chosen.threads)]
                threads = str(chosen.threads)
                env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
                subprocess.run(own, check=True, env=env)


def grow_pool(pool: Pool, size: int) -> Pool:
    """The pool up to `size`, or with copies beyond it: another server, a number in the name, and
    other words here and there in the description."""
    contracts, digests = dict(list(pool.contracts.items())[:size]), dict(pool.digests)
    servers = dict(pool.servers)
    words = sorted({word for of in pool.contracts.values() for word in _split_words(of)})
    rng, copy = random.Random(6), 0
    while len(contracts) < size:
        copy += 1
        for name, of in list(pool.contracts.items())[: size - len(contracts)]:
            server, tool = ToolId.parse(name)
            said = [
                rng.choice(words) if at % 7 == 6 else w for at, w in enumerate(_split_words(of))
            ]
            made = {**of, "name": f"{tool}_{copy}", "description": " ".join(said)}
            key = str(ToolId(f"{server}~{copy}", made["name"]))
            contracts[key], digests[key] = made, digest(made)
            about = pool.servers[server]
            servers[f"{server}~{copy}"] = {**about, "name": f"{about['name']} {copy}"}
    return Pool(contracts, digests, pool.listed, servers)


def embed_grown(known: set[str], embed: Embed) -> Embed:
    """Embeds known texts; any other gets the vector of one of them with noise (cosine about 0.8):
    to embed 100,000 texts takes an hour and changes no time of a search."""
    base = sorted(known)

    def embed_all(texts: Sequence[str]) -> np.ndarray:
        drawn = random.Random(6)
        sources = [text if text in known else drawn.choice(base) for text in texts]
        vectors = embed(sources)
        copied = np.array([one != text for one, text in zip(sources, texts, strict=True)])
        noise = np.random.default_rng(6).standard_normal((int(copied.sum()), vectors.shape[1]))
        vectors[copied] += (_NOISE * noise).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return embed_all


def _split_words(contract: dict[str, Any]) -> list[str]:
    return contract.get("description", "").split()


def measure_size(home: Path, size: int, count: int, threads: int) -> dict[str, Any]:
    """{find, search, raw product of one view and of all, MCP-Zero's loop: ms; memory: MB}."""
    texts = [row["instruction"] for row in read_corpus()]
    texts = [texts[at] for at in np.random.default_rng(1).permutation(len(texts))[:count]]
    base = MiniLM(threads=threads)
    save_encoder(base, home)
    name = base.id
    del base  # its bytes are no part of what serves
    model = open_encoder(home, name, threads=threads, most_tokens=QUERY_TOKENS)  # as served
    model.embed(texts[:1])
    before = _read_rss()
    index = load_index(home / "index", build_grown(home, size, model))
    router = Router(index, model)
    router.find(Ask(query=texts[0]))
    memory = {"rss_mb": _read_rss(), "index_mb": round(_read_rss() - before, 1)}
    row: dict[str, Any] = {"tools": len(index.tools), "servers": len(index.servers), **memory}
    row["load_average"] = os.getloadavg()[0]
    row["find"] = _time_each(lambda text: router.find(Ask(query=text)), texts)
    kept = Kept(model, home)
    kept.embed(texts)
    known = Router(index, kept)
    row["search"] = _time_each(lambda text: known.find(Ask(query=text)), texts)
    row["encode"] = _time_each(lambda text: model.embed([text]), texts)
    vectors = {text: kept.embed([text])[0] for text in texts}
    row |= _time_products(index, vectors, texts)
    row["rss_after_mb"] = _read_rss()
    row["MCP-Zero's loop"] = _time_each(_make_loop(index, vectors), texts[: _WARM + _LOOPS])
    for name in ("one product", "all products"):
        row[f"search / {name}"] = round(row["search"]["cpu p50"] / row[name]["cpu p50"], 2)
    return row


def build_grown(home: Path, size: int, model: Embedder) -> str:
    """The version of the index of that size, built once."""
    place, mark = home / "index", home / "index" / f"grown-{size}.json"
    if not mark.exists():
        base = read_smithery()
        texts: set[str] = set()
        for name, contract in base.contracts.items():
            texts |= set(
                build_tool_views(
                    contract, base.servers[ToolId.parse(name).server_id]["name"]
                ).values()
            )
        embed = embed_grown(texts, Kept(model, home).embed)
        version = build_index(place, source_of(grow_pool(base, size)), embed, embedder=model.id)
        mark.write_text(json.dumps({"version": version}))
    return json.loads(mark.read_bytes())["version"]


def _time_products(
    index: Index, vectors: dict[str, np.ndarray], texts: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The query times the matrix of the full view, and times those of every view."""
    views = {name: np.asarray(view.vectors) for name, view in index.views.items()}
    full = views["full"]
    return {
        "one product": _time_each(lambda text: full @ vectors[text], texts),
        "all products": _time_each(
            lambda text: [matrix @ vectors[text] for matrix in views.values()], texts
        ),
    }


def _make_loop(index: Index, vectors: dict[str, np.ndarray]) -> Callable[[str], Any]:
    full, described = index.views["full"].vectors, index.views["server"].vectors
    summarised = index.views["summary"].vectors
    servers: list[dict[str, Any]] = [
        {"description": d.tolist(), "summary": s.tolist(), "tools": []}
        for d, s in zip(described, summarised, strict=True)
    ]
    for at, tool in enumerate(index.tools):
        servers[tool.server]["tools"].append((at, full[at].tolist()))
    return lambda text: peers.mcp_zero_loop(vectors[text].tolist(), servers, 5)


def _time_each(run: Callable[[str], Any], texts: Sequence[str]) -> dict[str, float]:
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


def _read_rss() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


if __name__ == "__main__":
    main()
