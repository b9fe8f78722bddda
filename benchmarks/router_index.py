"""The router's own index over a pool, with vectors that are kept between runs."""

import json
from collections.abc import Iterable
from pathlib import Path

from assets.vectors.embed import MiniLM
from benchmarks.router_data import Pool
from benchmarks.router_vectors import Kept
from serving.index.folder import Source, build_index, load_index
from serving.router import Router


def source_of(pool: Pool, ids: Iterable[str] | None = None) -> Source:
    """The pool, or some of its tools, as what an index is built from."""
    rows = [
        {
            "server_id": name.rpartition("::")[0],
            "tool": name.rpartition("::")[2],
            "contract_digest": pool.digests[name],
            "contract": json.dumps(pool.contracts[name], ensure_ascii=False),
            "marketplace": "benchmark",
        }
        for name in (pool.ids if ids is None else ids)
    ]
    held = {row["server_id"] for row in rows}
    return Source(rows, {name: of for name, of in pool.servers.items() if name in held}, {}, {})


def encoder_of(home: Path, adapter: Path | None, threads: int) -> Kept:
    """MiniLM, or with an adapter merged, through the kept vectors."""
    return Kept(MiniLM(adapter, threads=threads), home)


def router_over(home: Path, pool: Pool, adapter: Path | None = None, threads: int = 1) -> Router:
    """A router over every tool of the pool; its index is built once a (pool, encoder)."""
    encoder = encoder_of(home, adapter, threads)
    return Router(load_index(home / "index", _built(home, source_of(pool), encoder)), encoder)


def _built(home: Path, source: Source, encoder: Kept) -> str:
    return build_index(home / "index", source, encoder.embed, embedder=encoder.id)
