"""The order that is served: the router's, over what is clear now, before its reranker.

What a reranker learns from and is measured on are the candidates that it is handed there, so an
index is made as the next release's will be, for as long as they are asked for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from assets.vectors.encoders.embedder import Embedder
from extensions.recommender.provider import open_pool
from extensions.recommender.reranking.features import Question
from serving.index.folder import build_index, load_index
from serving.index.model import Source
from serving.index.release_index import embed_views
from serving.ranking.overlays import OverlayBroken, read_overlay
from serving.router import Router
from training.releases.index_source import build_published_source
from warehouse.progress import Silent
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse


class ServedOrder:
    """A router without a reranker. pool: its tools, in the places of its index; version: names all
    that its order comes from but outcomes."""

    def __init__(self, router: Router) -> None:
        self._router, self.pool = router, open_pool(router.index)
        self.version = router.index.version

    def ask(self, words: Iterable[str], *, lifted: bool = False) -> dict[str, Question]:
        """By their words, questions as the reranker is asked them. lifted: in the order that
        reliability has a part in, as it is served; not where outcomes are to be told beforehand."""
        texts = list(dict.fromkeys(words))
        overlay = self._router.overlay if lifted else None
        return dict(zip(texts, self._router.list_questions(texts, overlay), strict=True))

    def score(self, words: Iterable[str]) -> dict[str, np.ndarray]:
        """By their words, the score that orders all tools, float32 [tools]; no outcome is in it."""
        texts = list(dict.fromkeys(words))
        return dict(zip(texts, self._router.score_tools(texts), strict=True))


@contextmanager
def open_served_order(
    warehouse: Warehouse, encoder: Embedder, asked: Collection[str]
) -> Iterator[ServedOrder]:
    """The order of the current tables with a retriever's encoder. asked: words that are put to it:
    an index that held them as requests of a tool would have been told the answer. Listed contracts
    are no candidates here, whatever the setting: nothing learns from what no launch confirmed."""
    home = warehouse.home
    source, _ = build_published_source(warehouse, unverified=False)
    store = LanceStore(home / "lance")
    cache = home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="served-order-", dir=cache) as folder:
        router = open_order(
            Path(folder),
            drop_requests(source, asked),
            lambda texts: embed_views(texts, encoder, store, Silent()),
            encoder,
        )
        try:
            overlay = read_overlay(home, router.index)
        except OverlayBroken:
            overlay = None  # as it is served then
        yield ServedOrder(router.renew(router.blocked, overlay))


def open_order(
    place: Path,
    source: Source,
    embed: Callable[[Sequence[str]], np.ndarray],
    encoder: Embedder,
) -> Router:
    """The router of a source, its index in `place`. Raises ValueError for a source without
    tools."""
    version = build_index(place, source, embed, embedder=encoder.id)
    return Router(load_index(place, version), encoder)


def drop_requests(source: Source, asked: Collection[str]) -> Source:
    """What orders tools of a source, without requests that are asked: no recipe, no history."""
    left_out = {text.strip() for text in asked}
    kept = {
        digest: [text for text in texts if text.strip() not in left_out]
        for digest, texts in source.instructions.items()
    }
    return replace(source, instructions=kept, recipes={}, moves=())
