"""The router's public face: what callers import.

router = open_router(place)                    # or ServedRouter(place).current()
router.find(Ask("which hour is it in Paris?", k=3))
router.find(Ask(server="a world clock", tool="tells the time in a city"))
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.outcomes.reliability.table import OVERLAY
from assets.vectors.encoders.embedder import embed_queries, measure_reading
from assets.vectors.texts import SERVER_VIEWS, TOOL_VIEWS
from serving.index.folder import load_index, read_served_version
from serving.index.model import Index, IndexBroken
from serving.ranking.overlays import (
    Blocked,
    Eligible,
    Overlay,
    OverlayBroken,
    Reliability,
    read_blocked,
    read_overlay,
)
from serving.ranking.query import (
    MAX_TEXT,
    MOST_HITS,
    STRATEGIES,
    Answer,
    Ask,
    BadQuery,
    Hit,
    check_ask,
    read_ask,
)
from serving.ranking.reranking import (
    RERANKED,
    Reranker,
    RerankQuestion,
    make_question,
    open_ranker,
    rank_by_success,
)
from serving.ranking.signals import Signals, normalise_vector, read_ask_texts
from serving.ranking.strategies import BY_NAME, Ranked

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder

CONTEXT = 0.2  # weight of what the conversation was about beside what is asked
AS_GOOD, FAR = 0.02, 0.6  # shares of the spread between the first hit and those not shown
_SPARE = 40  # places beyond k that are ranked, so that collapsed twins leave k hits


class Router:
    """Answers questions from one index with the encoder that made it; safe to share by threads."""

    def __init__(
        self,
        index: Index,
        encoder: "Embedder",
        blocked: Blocked | None = None,
        overlay: Overlay | None = None,
        ranker: Reranker | None = None,
    ) -> None:
        if encoder.id != index.embedder:
            raise IndexBroken(
                f"router index {index.version[:12]} was made by {index.embedder}, the encoder is"
                f" {encoder.id}; build it again: materialize router_index, or `toolmill index"
                " SERVERS.jsonl --out` this folder"
            )
        dim = index.block.shape[1]
        if encoder.dim != dim:
            raise IndexBroken(
                f"router index {index.version[:12]}: view-full.npy has {dim} numbers a vector,"
                f" its encoder {encoder.id} gives {encoder.dim}; delete the folder and build it"
                " again: materialize router_index, or `toolmill index SERVERS.jsonl --out` it"
            )
        self.index = index
        self.blocked = blocked or Blocked()
        self.encoder = encoder
        self.overlay = overlay
        self.ranker = ranker or open_ranker(index)
        self._eligible = Eligible(index, self.blocked)

    def renew(self, blocked: Blocked, overlay: Overlay | None) -> "Router":
        """The same router under other decisions of the quarantine, and by other outcomes."""
        return Router(self.index, self.encoder, blocked, overlay, self.ranker)

    def tell_reliability(self, place: int) -> Reliability | None:
        """How often the tool at a place works; None where nothing is known."""
        return None if self.overlay is None else self.overlay.tell(place)

    def may_answer(self, place: int) -> bool:
        """Whether the tool at a place may be answered at all."""
        return self._eligible.may_answer(place)

    def find(self, ask: Ask | None = None, **parts: Any) -> Answer:
        """The best tools for one question: an Ask, or its parts by name, as
        `find(server="a clock", tool="tells the time", k=3)`. Raises BadQuery."""
        return self.find_many([read_ask(ask, **parts)])[0]

    def find_many(self, asks: Sequence[Ask]) -> list[Answer]:
        """`find` for many questions, encoded together; `ms` shares the encoding out."""
        began = time.perf_counter()
        ready = [check_ask(ask) for ask in asks]
        pairs = [read_ask_texts(ask) for ask, _ in ready]
        contexts = [ask.context for ask, _ in ready if ask.context]
        texts = list(dict.fromkeys([*(text for pair in pairs for text in pair), *contexts]))
        at = {text: row for row, text in enumerate(texts)}
        vectors = embed_queries(self.encoder, texts) if texts else np.zeros((0, 1), np.float32)
        reads = measure_reading(self.encoder, texts)
        shared = (time.perf_counter() - began) / max(len(asks), 1)
        out = []
        for (ask, notes), (tool, server) in zip(ready, pairs, strict=True):
            began = time.perf_counter()
            vector = vectors[at[tool]]
            of_server = vector if server == tool else vectors[at[server]]
            if ask.context:
                vector = normalise_vector(vector + CONTEXT * vectors[at[ask.context]])
            reading = float(reads[at[tool]]), float(reads[at[server]])
            signals = Signals(self.index, ask, vector, of_server, self.overlay, reading)
            hits, suitable = self._rank_hits(signals)
            ms = (shared + time.perf_counter() - began) * 1000
            out.append(self._make_answer(ask, hits, suitable, notes, ms))
        return out

    def embed_words(self, words: str) -> np.ndarray:
        """The vector of a query's words, as `find` compares it with tools."""
        return embed_queries(self.encoder, [words])[0]

    def list_questions(
        self, words: Sequence[str], overlay: Overlay | None = None
    ) -> list[RerankQuestion]:
        """What a reranker is asked for these words: the first of the fused order. overlay: outcomes
        that have a part in it. Raises BadQuery."""
        return [
            make_question(signals, self._rank_fused(signals, RERANKED).places)
            for signals in self._read_words(words, overlay)
        ]

    def score_tools(self, words: Sequence[str]) -> list[np.ndarray]:
        """The fused score of every tool for these words, float32 [tools]; minus infinity for those
        that may not be answered. Raises BadQuery."""
        found = []
        for signals in self._read_words(words, None):
            ranked = self._rank_fused(signals, len(self.index.tools))
            scores = np.full(len(self.index.tools), -np.inf, np.float32)
            scores[ranked.places] = ranked.scores
            found.append(scores)
        return found

    def _read_words(self, words: Sequence[str], overlay: Overlay | None) -> Iterator[Signals]:
        asks = [check_ask(Ask(query=text))[0] for text in words]
        texts = [read_ask_texts(ask)[0] for ask in asks]
        vectors = embed_queries(self.encoder, texts) if texts else []
        reads = measure_reading(self.encoder, texts).tolist()
        for ask, vector, read in zip(asks, vectors, reads, strict=True):
            yield Signals(self.index, ask, vector, vector, overlay, (read, read))

    def _rank_fused(self, signals: Signals, most: int) -> Ranked:
        return BY_NAME["ours"](signals, self._eligible.mask(None, ()), most)

    def _make_answer(
        self, ask: Ask, hits: list[Hit], suitable: float, notes: tuple[str, ...], ms: float
    ) -> Answer:
        return Answer(
            hits=hits,
            index=self.index.version,
            strategy=ask.strategy,
            suitable=suitable,
            no_tool=not hits or suitable < self.index.fusion.threshold,
            ms=round(ms, 2),
            notes=notes,
        )

    def _rank_hits(self, signals: Signals) -> tuple[list[Hit], float]:
        ask = signals.ask
        mask = self._eligible.mask(ask.allowed, ask.exclude)
        if mask is not None and not mask.any():
            return [], 0.0
        ranker = self.ranker if ask.strategy == "ours" else None
        most = max(ask.k + ask.stretch + _SPARE, RERANKED if ranker else 0)
        while True:
            ranked = BY_NAME[ask.strategy](signals, mask, most)
            ranked = rank_by_success(ranker, signals, ranked) if ranker else ranked
            groups = _collapse_twins(self.index.twins[ranked.places])
            if len(groups) >= ask.k + ask.stretch or len(ranked.places) < most:
                break
            most *= 2
        suitable = ranked.suitable
        if suitable is None:
            suitable = BY_NAME["ours"](signals, mask, 1).suitable or 0.0
        shown = groups[: _count_shown(ask, ranked.scores[[group[0] for group in groups]])]
        return self._choose_shown(signals, ranked, shown), suitable

    def _choose_shown(self, signals: Signals, ranked: Ranked, groups: list[list[int]]) -> list[Hit]:
        heads = np.array([group[0] for group in groups], int)
        words = signals.list_shared(ranked.places[heads])
        parts = np.round(np.array([part[heads] for part in ranked.parts.values()], float), 4)
        rows = [dict(zip(ranked.parts, row, strict=True)) for row in parts.T.tolist()]
        return [
            self._make_hit(ranked, group, {name: v for name, v in row.items() if v == v}, shared)
            for group, row, shared in zip(groups, rows, words, strict=True)
        ]

    def _make_hit(
        self, ranked: Ranked, group: list[int], scores: dict[str, float], words: list[str]
    ) -> Hit:
        place = int(ranked.places[group[0]])
        tool = self.index.tools[place]
        return Hit(
            tool_id=tool.tool_id,
            server_id=tool.server_id,
            tool=tool.tool,
            score=round(float(ranked.scores[group[0]]), 4),
            description=tool.description,
            contract_digest=tool.contract_digest,
            why={"view": _choose_best_view(scores), "scores": scores, "words": words},
            twins=tuple(self.index.tools[int(ranked.places[i])].tool_id for i in group[1:]),
            flags=tool.flags,
            read_only=tool.read_only,
            reliability=self.tell_reliability(place),
        )


def _choose_best_view(scores: Mapping[str, float]) -> str:
    """The view that matched best: all views are told on one scale. Words, where a cosine says
    nothing: the encoder does not read the question, or nothing is nearer than the pool's mean."""
    views = (*TOOL_VIEWS, *SERVER_VIEWS)
    seen = {name: scores[name] for name in views if scores.get(name, 0.0) > 0}
    return max(seen, key=lambda name: seen[name], default="words")


def _count_shown(ask: Ask, scores: np.ndarray) -> int:
    """How many of the ranked hits are given: k, some more that are as good as the k-th where that
    was asked for, fewer where the rest fall far behind the first and that was asked for."""
    if not len(scores):
        return 0
    spread = float(scores[0] - scores[min(len(scores) - 1, ask.k + ask.stretch + _SPARE)])
    count = min(ask.k, len(scores))
    while count < min(ask.k + ask.stretch, len(scores)):
        if scores[count] < scores[min(ask.k, len(scores)) - 1] - AS_GOOD * spread:
            break
        count += 1
    if ask.trim:
        count = max(1, int(np.sum(scores[:count] >= scores[0] - FAR * spread)))
    return count


def _collapse_twins(twins: np.ndarray) -> list[list[int]]:
    """Rows of one twin group together, groups in the order of their best row."""
    groups: dict[int, list[int]] = {}
    for row, group in enumerate(twins.tolist()):
        groups.setdefault(group, []).append(row)
    return list(groups.values())


Opened = Callable[[Path, str | None], Router]

_log = logging.getLogger(__name__)
# Word pieces of a query that are encoded, half of them from its end: a conversation asks there. 9%
# of the corpus's queries are longer; reading them whole found the right tool first as often as
# reading their beginning (.309 against .308, n = 1,224; difference -.004 to .003) and took twice as
# long.
QUERY_TOKENS = 64
_AGAIN = 30.0  # seconds until a version that could not be loaded is tried again


def open_router(place: Path, version: str | None = None) -> Router:
    """Loads a version (the served one by default) with its encoder and the quarantine's decisions.
    Raises IndexMissing or IndexBroken with the fix."""
    index = load_index(place, version or read_served_version(place))
    encoder = _open_encoder(place, index.embedder, index.adapter)
    return Router(index, encoder, read_blocked(place), _read_overlay(place, index, None))


class ServedRouter:
    """The router of whatever version is served now. A new one is loaded beside the old one, which
    answers meanwhile; one that cannot be loaded is told of once and the old one stays.

    `opened`: how a version (None: the served one) of the place becomes a router.
    """

    def __init__(self, place: Path, opened: "Opened | None" = None) -> None:
        self._place, self._lock = place, Lock()
        self._opened = opened or open_router
        self._router: Router | None = None
        self._seen: tuple[object, ...] = ()
        self._failed: tuple[object, ...] = ()
        self._failed_at = 0.0
        self._last_error: str | None = None
        self._loading: Thread | None = None
        self._listeners: list[Callable[[str], None]] = []

    def current(self) -> Router:
        """The router to ask now. Raises IndexMissing or IndexBroken with the fix while there is
        none at all."""
        router = self._router
        if router is None:
            with self._lock:
                if self._router is None:
                    seen = self._read_marks()
                    self._router, self._seen = self._opened(self._place, None), seen
                return self._router
        marks = self._read_marks()
        if marks != self._seen and self._is_due(marks):
            self._start(marks)
        return self._router or router

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Calls `callback(version)` after each swap, in the loading thread."""
        self._listeners.append(callback)

    def settle(self, timeout: float | None = None) -> Router:
        """Waits until what is published now is loaded, or has failed to; for orderly shutdowns and
        tests. The router that then answers."""
        self.current()
        loading = self._loading
        if loading is not None:
            loading.join(timeout)
        return self.current()

    def _is_due(self, marks: tuple[object, ...]) -> bool:
        """What failed is tried again after a while; what was published since (a fix, a rollback)
        at once."""
        return marks != self._failed or time.monotonic() - self._failed_at > _AGAIN

    def _start(self, marks: tuple[object, ...]) -> None:
        with self._lock:
            if self._loading is None or not self._loading.is_alive():
                self._loading = Thread(target=self._load, args=(marks,), daemon=True)
                self._loading.start()

    def _load(self, marks: tuple[object, ...]) -> None:
        old = self._router
        try:
            new = self._renew_router(old)
        except Exception as error:  # whatever it is, the old version goes on answering
            self._failed, self._failed_at = marks, time.monotonic()
            if str(error) != self._last_error:
                self._last_error = str(error)
                kept = old.index.version[:12] if old else "nothing"
                _log.error("new router index not served, %s stays: %s", kept, error)
            return
        self._router, self._seen, self._last_error = new, marks, None
        self._failed = ()
        if old is None or new.index.version != old.index.version:
            for callback in list(self._listeners):
                callback(new.index.version)

    def _renew_router(self, old: Router | None) -> Router:
        """The old router under new decisions and outcomes, or a new one where the version moved."""
        version, blocked = read_served_version(self._place), read_blocked(self._place)
        if old is not None and old.index.version == version:
            return old.renew(blocked, _read_overlay(self._place, old.index, old.overlay))
        return self._opened(self._place, version)

    def _read_marks(self) -> tuple[object, ...]:
        """What changes when HEAD.json, BLOCKED.json or the overlay is written anew."""
        names = ("HEAD.json", "BLOCKED.json", OVERLAY)
        return tuple(_read_mark(self._place / "router" / name) for name in names)


def _read_mark(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _read_overlay(place: Path, index: Index, old: Overlay | None) -> Overlay | None:
    """The overlay of the place. One that cannot be read is told of and leaves the old one: it must
    hold back neither searches nor the quarantine's decisions."""
    try:
        return read_overlay(place, index)
    except OverlayBroken as error:
        _log.error("reliability not told anew: %s", error)
        return old


def _open_encoder(place: Path, embedder: str, adapter: str | None) -> "Embedder":
    """The exported encoder of the place, else the model itself with the adapter it merges."""
    from assets.vectors.encoders.minilm import MiniLM
    from assets.vectors.encoders.saved import open_encoder

    if (place / "encoders").is_dir():
        return open_encoder(place, embedder, most_tokens=QUERY_TOKENS)
    made = MiniLM(place / "models" / adapter if adapter else None)
    if made.id != embedder:
        return open_encoder(place, embedder)  # which says what is missing
    made.open()  # before the first question comes
    return made


__all__ = [
    "MAX_TEXT",
    "MOST_HITS",
    "STRATEGIES",
    "Answer",
    "Ask",
    "BadQuery",
    "Blocked",
    "Hit",
    "Router",
    "ServedRouter",
    "open_router",
    "read_blocked",
]
