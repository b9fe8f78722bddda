"""How long `Router.find` takes, of it the encoder and the search, and its memory.

    python -m benchmarks.router_latency [--home DIR] [--sizes 12600 100000]

Prints one JSON object a size.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import Embedder
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.saved import open_encoder, save_encoder
from assets.vectors.texts import build_tool_views
from benchmarks.shared_data import SHARED, StoredEmbedder, read_corpus, require_paths, run_alone
from serving.adhoc import read_source
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.ranking.query import ToolQuery
from serving.router import QUERY_TOKENS, Router
from warehouse.storage.digest import digest

SMITHERY = SHARED / "smithery" / "servers.jsonl"
_NOISE = 0.038  # a coordinate's deviation: cosine 0.8 in 384 dimensions
Embed = Callable[[Sequence[str]], np.ndarray]
_WARM = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("var/router_bench"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[12_600, 100_000])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    require_paths(SHARED / "corpus", SMITHERY)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(chosen.threads))
    for size in chosen.sizes:  # a process each: one size's memory is not another's
        run_alone(build_size, chosen.home, size, chosen.threads)
        found = run_alone(measure_size, chosen.home, size, chosen.queries, chosen.threads)
        print(json.dumps(found, indent=1))


def build_size(home: Path, size: int, threads: int) -> None:
    build_grown(home, size, MiniLM(threads=threads))


def grow_source(source: IndexSource, size: int) -> IndexSource:
    """The tools up to `size`, or with copies beyond it: another server, a number in the name, and
    other words here and there in the description."""
    rows, servers = list(source.rows[:size]), dict(source.servers)
    base = [(row["server_id"], json.loads(row["contract"])) for row in source.rows]
    words = sorted({word for _, of in base for word in of.get("description", "").split()})
    rng, copy = random.Random(6), 0
    while len(rows) < size:
        copy += 1
        for server, of in base[: size - len(rows)]:
            listed = enumerate(of.get("description", "").split())
            description = [rng.choice(words) if at % 7 == 6 else word for at, word in listed]
            made = {**of, "name": f"{of['name']}_{copy}", "description": " ".join(description)}
            text = json.dumps(made, ensure_ascii=False)
            row = {"server_id": f"{server}~{copy}", "tool": made["name"], "contract": text}
            rows.append(row | {"contract_digest": digest(made), "marketplace": "benchmark"})
            about = source.servers[server]
            servers[f"{server}~{copy}"] = {**about, "name": f"{about['name']} {copy}"}
    held = {row["server_id"] for row in rows}
    return IndexSource(rows, {name: of for name, of in servers.items() if name in held})


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


class PreparedEmbedder:
    """An embedder that has embedded these texts already."""

    def __init__(self, model: Embedder, texts: Sequence[str]) -> None:
        self.id, self.dim = model.id, model.dim
        self._vectors = dict(zip(texts, model.embed(texts), strict=True))

    def embed(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        return np.stack([self._vectors[text] for text in texts])


def measure_size(home: Path, size: int, count: int, threads: int) -> dict[str, Any]:
    """{find, search without embedding, encode: ms; memory: MB}."""
    texts = [row["instruction"] for row in read_corpus()]
    texts = [texts[at] for at in np.random.default_rng(1).permutation(len(texts))[:count]]
    base = MiniLM(threads=threads)
    save_encoder(base, home)
    name = base.id
    del base  # its bytes are no part of what serves
    model = open_encoder(home, name, threads=threads, most_tokens=QUERY_TOKENS)  # as served
    model.embed(texts[:1])
    before = read_rss()
    index = load_index(home / "index", build_grown(home, size, model))
    router = Router(index, model)
    router.find(ToolQuery(query=texts[0]))
    memory = {"rss_mb": read_rss(), "index_mb": round(read_rss() - before, 1)}
    row: dict[str, Any] = {"tools": len(index.tools), "servers": len(index.servers), **memory}
    row["load_average"] = os.getloadavg()[0]
    row["find"] = _time_each(lambda text: router.find(ToolQuery(query=text)), texts)
    known = Router(index, PreparedEmbedder(model, texts))
    row["search"] = _time_each(lambda text: known.find(ToolQuery(query=text)), texts)
    row["encode"] = _time_each(lambda text: model.embed([text]), texts)
    row["rss_after_mb"] = read_rss()
    return row


def build_grown(home: Path, size: int, model: Embedder) -> str:
    """The version of the index of that size, built once."""
    place, mark = home / "index", home / "index" / f"grown-{size}.json"
    if not mark.exists():
        base, _ = read_source(SMITHERY)
        texts = {
            text
            for row in base.rows
            for text in build_tool_views(json.loads(row["contract"])).values()
        }
        embed = embed_grown(texts, StoredEmbedder(model, home).embed)
        version = build_index(place, grow_source(base, size), embed, embedder=model.id)
        mark.write_text(json.dumps({"version": version}))
    return json.loads(mark.read_bytes())["version"]


def _time_each(run: Callable[[str], Any], texts: Sequence[str]) -> dict[str, float]:
    """Milliseconds: p50, p95, p99 over the texts, after some to warm up; and p50 and p95 of the
    processor's time, which others' work on the machine moves less."""
    took, worked = [], []
    for text in [*texts[:_WARM], *texts]:
        began, busy = time.perf_counter(), time.process_time()
        run(text)
        worked.append((time.process_time() - busy) * 1000)
        took.append((time.perf_counter() - began) * 1000)
    p50, p95, p99 = np.quantile(took[_WARM:], [0.5, 0.95, 0.99])
    cpu50, cpu95 = np.quantile(worked[_WARM:], [0.5, 0.95])
    found = {"p50": p50, "p95": p95, "p99": p99, "cpu p50": cpu50, "cpu p95": cpu95}
    return {**{name: round(float(ms), 3) for name, ms in found.items()}, "n": len(took) - _WARM}


def read_rss() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


if __name__ == "__main__":
    main()
