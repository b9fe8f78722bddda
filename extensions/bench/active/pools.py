"""The pools of a set as routers: an index each, whose texts are embedded once."""

from collections import OrderedDict
from pathlib import Path

from assets.vectors.encoders.embedder import Embedder
from extensions.bench.active.cases import Case, CaseSet, select_source
from serving.adhoc import VectorCache
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.router import Router
from warehouse.progress import Progress, SilentProgress

_OPEN = 4  # routers that are held at once: neighbouring cases share one


class RouterPools:
    """Case -> the router of an index of its pool alone, under `place`. What is known of a pool's
    tools (means, rare words) is then what a user of that pool would have."""

    def __init__(
        self, place: Path, held: CaseSet, encoder: Embedder, progress: Progress | None = None
    ) -> None:
        self._place, self._held, self._encoder = place, held, encoder
        self._vectors = VectorCache(place, encoder, progress or SilentProgress())
        self._routers: OrderedDict[frozenset[str], Router] = OrderedDict()

    def __call__(self, case: Case) -> Router:
        pool = frozenset(case.pool)
        if pool not in self._routers:
            source = select_source(self._held.source, pool)
            version = build_index(self._place, source, self._vectors, embedder=self._encoder.id)
            self._routers[pool] = Router(load_index(self._place, version), self._encoder)
            while len(self._routers) > _OPEN:
                self._routers.popitem(last=False)
        self._routers.move_to_end(pool)
        return self._routers[pool]
