"""`toolmill index` and `toolmill search`: an index of any file of servers, and questions to it.

<out>/router, encoders   as everywhere (`serving/index/folder.py`)
      source.json.zst    what the index was made of: `search --retriever` makes another of it
      lance/             vectors by text and encoder: what is known is not embedded again
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import Embedder
from serving.adhoc_source import read_source
from serving.export import open_checked
from serving.index.errors import IndexMissing
from serving.index.folder import build_index, move_pointer
from serving.index.model import Source
from serving.ranking.query import check_ask
from serving.router import Ask, BadQuery, Router
from warehouse.errors import UnusableInput
from warehouse.progress import Progress, Silent
from warehouse.storage.files import write_atomically

_SOURCE = "source.json.zst"
_BATCH = 64  # queries that share one pass of the encoder


def index_command(
    servers: Path, out: Path, encoder: Embedder, progress: Progress | None = None
) -> dict[str, Any]:
    """Indexes every usable tool of a JSON Lines file of servers and points `out` at the index.

    Returns {version, out, tools, servers, skipped, embedder, embedded, known, seconds}.
    Raises UnusableInput.
    """
    began = time.perf_counter()
    source, skipped = read_source(servers)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableInput(
            f"--out {out}: {error.strerror}; name a folder that is there or can be made"
        ) from error
    version, counted = _build_into(out, source, encoder, progress or Silent())
    _keep_source(out, source)
    move_pointer(out, version)
    return {
        "version": version,
        "out": str(out),
        "tools": len(source.rows),
        "servers": len(source.servers),
        "skipped": skipped,
        "embedder": encoder.id,
        **counted,
        "seconds": round(time.perf_counter() - began, 1),
    }


def open_routed(
    place: Path, encoder: Embedder | None = None, progress: Progress | None = None
) -> Router:
    """The router of the served index, or of the same tools embedded by another encoder. An exported
    release is checked first, as `serve --place` does.

    Raises IndexMissing, IndexBroken, BadExport.
    """
    open_place = open_checked()
    if encoder is None:
        return open_place(place, None)
    kept = place / _SOURCE
    if not kept.exists():
        raise IndexMissing(
            f"{place}: no {_SOURCE} to embed with {encoder.id}; make the index with"
            " `toolmill index SERVERS.jsonl --out DIR --retriever PATH`"
        )
    version, _ = _build_into(place, _read_kept(kept), encoder, progress or Silent())
    return open_place(place, version)


def search_command(router: Router, ask: Ask) -> dict[str, Any]:
    """One answer: {index, release, tools, strategy, suitable, no_tool, ms, hits[…]}; `ms` is the
    search with the query's embedding, without loading the index. Raises BadQuery."""
    index = router.index
    about = {"release": index.release, "tools": len(index.tools)}
    return about | asdict(router.find(ask))


def search_many(
    router: Router, rows: Iterable[Mapping[str, str]], ask: Ask
) -> Iterator[dict[str, Any]]:
    """One answer per row {query, server, tool: any of them}, in order; `ms` is a row's share of its
    batch. A row that cannot be answered is an answer without hits that holds `error`. Raises
    BadQuery where the question itself is wrong, as by its k."""
    check_ask(replace(ask, query="any"))
    asks = [replace(ask, **row) for row in rows]
    for part in (asks[start : start + _BATCH] for start in range(0, len(asks), _BATCH)):
        refused = {at: why for at, one in enumerate(part) if (why := _find_refusal(one))}
        found = iter(router.find_many([one for at, one in enumerate(part) if at not in refused]))
        for at in range(len(part)):
            yield {"hits": [], "error": refused[at]} if at in refused else asdict(next(found))


def _find_refusal(ask: Ask) -> str | None:
    try:
        check_ask(ask)
    except BadQuery as error:
        return str(error)
    return None


def _build_into(
    place: Path, source: Source, encoder: Embedder, progress: Progress
) -> tuple[str, dict[str, int]]:
    from assets.vectors.embed import save_encoder

    save_encoder(encoder, place)
    cache = VectorCache(place, encoder, progress)
    version = build_index(place, source, cache, embedder=encoder.id, progress=progress.update)
    return version, {"embedded": cache.embedded, "known": cache.known}


class VectorCache:
    """Texts to vectors through the store beside the index."""

    def __init__(self, place: Path, encoder: Embedder, progress: Progress) -> None:
        from warehouse.storage.lance import LanceStore

        self._store, self._encoder, self._progress = LanceStore(place / "lance"), encoder, progress
        self.embedded = self.known = 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        from serving.index.release_index import VIEWS, embed_views

        before = self._store.count(VIEWS)
        found = embed_views(texts, self._encoder, self._store, self._progress)
        new = self._store.count(VIEWS) - before
        self.embedded += new
        self.known += len(set(texts)) - new
        return found


def _keep_source(place: Path, source: Source) -> None:
    import zstandard

    body = json.dumps(asdict(source), ensure_ascii=False).encode("utf-8", "surrogatepass")
    write_atomically(place / _SOURCE, zstandard.compress(body))


def _read_kept(path: Path) -> Source:
    import zstandard

    return Source(**json.loads(zstandard.decompress(path.read_bytes())))
