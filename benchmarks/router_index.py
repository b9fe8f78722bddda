"""The router's own index over a pool, with vectors that are kept between runs.

<home>/texts/<model>/<n>.npz    keys, vectors: one shard for each slice that was embedded
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from assets.contracts.tool_id import ToolId
from assets.vectors.embed import Embedder, MiniLM
from benchmarks.router_data import Pool
from serving.index.folder import build_index, load_index
from serving.index.model import Source
from serving.router import Router
from warehouse.storage.digest import sha256

_SHARD = 1000  # texts embedded before they are kept: a kill loses at most these


class Kept:
    """An embedder whose vectors are kept; `id` and `dim` are the model's own."""

    def __init__(self, model: Embedder, home: Path) -> None:
        self.id, self.dim, self._model = model.id, model.dim, model
        self._folder = home / "texts" / model.id.replace("/", "-").replace("+", "-")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, np.ndarray] = {}
        for path in sorted(self._folder.glob("*.npz")):
            with np.load(path) as shard:
                self._known.update(zip(shard["keys"].tolist(), shard["vectors"], strict=True))

    def embed(
        self, texts: Sequence[str], *, on_done: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Float32 [len(texts), dim], unit rows."""
        keys = [_key(text) for text in texts]
        given = dict(zip(keys, texts, strict=True))
        missing = {key: text for key, text in given.items() if key not in self._known}
        began, wanted = time.perf_counter(), list(missing)
        for start in range(0, len(wanted), _SHARD):
            part = wanted[start : start + _SHARD]
            self.keep(part, self._model.embed([missing[key] for key in part]))
            done = start + len(part)
            if on_done:
                on_done(done, len(wanted))
            spent = time.perf_counter() - began
            print(f"  embedded {done}/{len(wanted)} in {spent:.0f} s", file=sys.stderr, flush=True)
        if not keys:
            return np.zeros((0, self.dim), np.float32)
        return np.stack([self._known[key] for key in keys])

    __call__ = embed

    def keep(self, keys: Sequence[str], vectors: np.ndarray) -> None:
        """Adds vectors under text keys, as one shard."""
        name = sha256("".join(keys).encode())[:24]
        beside = self._folder / f".{name}.tmp"
        with beside.open("wb") as file:
            np.savez(file, keys=np.array(keys), vectors=np.asarray(vectors, np.float32))
        beside.rename(self._folder / f"{name}.npz")
        self._known.update(zip(keys, np.asarray(vectors, np.float32), strict=True))


def _key(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass"))


def source_of(pool: Pool) -> Source:
    """The pool as what an index is built from."""
    rows = [
        {
            **ToolId.parse(name)._asdict(),
            "contract_digest": pool.digests[name],
            "contract": json.dumps(contract, ensure_ascii=False),
            "marketplace": "benchmark",
        }
        for name, contract in pool.contracts.items()
    ]
    held = {row["server_id"] for row in rows}
    return Source(rows, {name: of for name, of in pool.servers.items() if name in held}, {}, {})


def open_router(home: Path, pool: Pool, threads: int = 1) -> Router:
    """A router over every tool of the pool; its index is built once."""
    encoder = Kept(MiniLM(threads=threads), home)
    place = home / "index"
    version = build_index(place, source_of(pool), encoder.embed, embedder=encoder.id)
    return Router(load_index(place, version), encoder)
