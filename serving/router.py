"""The router: a question in words, the best tools out, each with the reason why.

router = open_router(place)                    # or ServedRouter(place).current()
router.find(ToolQuery("which hour is it in Paris?", k=3))
router.find(server="a world clock", tool="tells the time in a city")
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.outcomes.policy import OVERLAY
from assets.vectors.encoders.embedder import embed_queries, measure_reading
from assets.vectors.texts import SERVER_VIEWS, TOOL_VIEWS
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken, RouterIndex
from serving.ranking.overlays import (
    BLOCKED,
    BlockedTools,
    OverlayBroken,
    ReliabilityOverlay,
    ToolEligibility,
    ToolReliability,
    read_blocked,
    read_overlay,
)
from serving.ranking.query import QueryAnswer, ToolHit, ToolQuery, check_ask, read_ask
from serving.ranking.signals import QuerySignals, find_pool, normalise_vector, read_ask_texts
from serving.ranking.strategies import (
    BY_NAME,
    RERANKED,
    Reranker,
    RerankQuestion,
    ToolRanking,
    make_question,
    open_ranker,
    rank_by_success,
)

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder

CONTEXT = 0.2  # weight of the conversation's subject beside the question
_SPARE = 40  # places beyond k that are ranked, so that collapsed twins leave k hits
# Word pieces of a query that are encoded, half of them from its end: a conversation asks there. 9%
# of the corpus's queries are longer; reading them whole found the right tool first as often as
# reading their beginning (.309 against .308, n = 1,224; difference -.004 to .003) and took twice as
# long.
QUERY_TOKENS = 64
_RETRY_S = 30.0  # until a version that could not be loaded is tried again
OpenVersion = Callable[[Path, str | None], "Router"]

_log = logging.getLogger(__name__)


class Router:
    """Answers questions from one index with the encoder that made it; safe to share by threads."""

    def __init__(
        self,
        index: RouterIndex,
        encoder: "Embedder",
        blocked: BlockedTools | None = None,
        overlay: ReliabilityOverlay | None = None,
        ranker: Reranker | None = None,
    ) -> None:
        name = f"router index {index.version[:12]}"
        rebuild = "materialize router_index, or `toolmill index SERVERS.jsonl --out`"
        if encoder.id != index.embedder:
            raise IndexBroken(
                f"{name} was made by {index.embedder}, the encoder is {encoder.id}; build it again:"
                f" {rebuild} this folder"
            )
        if encoder.dim != (dim := index.dim):
            raise IndexBroken(
                f"{name}: view-full.npy has {dim} numbers a vector, its encoder {encoder.id} gives"
                f" {encoder.dim}; delete the folder and build it again: {rebuild} it"
            )
        self.index, self.encoder, self.overlay = index, encoder, overlay
        self.blocked = blocked or BlockedTools()
        self.ranker = ranker or open_ranker(index)
        self._eligible = ToolEligibility(index, self.blocked)

    def renew(self, blocked: BlockedTools, overlay: ReliabilityOverlay | None) -> "Router":
        """The same router with other blocked tools and other outcomes."""
        return Router(self.index, self.encoder, blocked, overlay, self.ranker)

    def tell_reliability(self, place: int) -> ToolReliability | None:
        return None if self.overlay is None else self.overlay.tell(place)

    def may_answer(self, place: int) -> bool:
        return self._eligible.may_answer(place)

    def find(self, ask: ToolQuery | None = None, **parts: Any) -> QueryAnswer:
        """The best tools for one question: a ToolQuery, or its parts by name. Raises BadQuery."""
        return self.find_many([read_ask(ask, **parts)])[0]

    def find_many(self, asks: Sequence[ToolQuery]) -> list[QueryAnswer]:
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
        answers = []
        for (ask, notes), (tool, server) in zip(ready, pairs, strict=True):
            began = time.perf_counter()
            vector = vectors[at[tool]]
            of_server = vector if server == tool else vectors[at[server]]
            if ask.context:
                vector = normalise_vector(vector + CONTEXT * vectors[at[ask.context]])
            reading = float(reads[at[tool]]), float(reads[at[server]])
            mask = self._eligible.mask(ask.allowed, ask.exclude)
            pool = find_pool(self.index, ask, vector, of_server, mask)
            signals = QuerySignals(self.index, ask, vector, of_server, self.overlay, reading, pool)
            hits, suitable = self._rank_hits(signals, mask)
            answers.append(
                QueryAnswer(
                    hits=hits,
                    index=self.index.version,
                    strategy=ask.strategy,
                    suitable=suitable,
                    no_tool=not hits or suitable < self.index.fusion.threshold,
                    ms=round((shared + time.perf_counter() - began) * 1000, 2),
                    notes=notes,
                )
            )
        return answers

    def embed_words(self, words: str) -> np.ndarray:
        """The vector of a query's words, as `find` compares it with tools."""
        return embed_queries(self.encoder, [words])[0]

    def list_questions(
        self, words: Sequence[str], overlay: ReliabilityOverlay | None = None
    ) -> list[RerankQuestion]:
        """The questions for a reranker in these words: the first of the fused order. overlay:
        outcomes that have a part in it. Raises BadQuery."""
        return [
            make_question(signals, self._rank_fused(signals, RERANKED).places)
            for signals in self._read_words(words, overlay)
        ]

    def score_tools(self, words: Sequence[str]) -> list[np.ndarray]:
        """Fused score of every tool for these words, float32 [tools]; minus infinity for barred
        ones and, in a large index, for all but the candidates. Raises BadQuery."""
        rows = []
        for signals in self._read_words(words, None):
            ranking = self._rank_fused(signals, len(self.index.tools))
            scores = np.full(len(self.index.tools), -np.inf, np.float32)
            scores[ranking.places] = ranking.scores
            rows.append(scores)
        return rows

    def _read_words(
        self, words: Sequence[str], overlay: ReliabilityOverlay | None
    ) -> Iterator[QuerySignals]:
        asks = [check_ask(ToolQuery(query=text))[0] for text in words]
        texts = [read_ask_texts(ask)[0] for ask in asks]
        vectors = embed_queries(self.encoder, texts) if texts else []
        reads = measure_reading(self.encoder, texts).tolist()
        for ask, vector, read in zip(asks, vectors, reads, strict=True):
            pool = find_pool(self.index, ask, vector, vector, self._eligible.mask(None, ()))
            yield QuerySignals(self.index, ask, vector, vector, overlay, (read, read), pool)

    def _rank_fused(self, signals: QuerySignals, most: int) -> ToolRanking:
        return BY_NAME["ours"](signals, signals.pool.cut_mask(self._eligible.mask(None, ())), most)

    def _rank_hits(
        self, signals: QuerySignals, eligible: np.ndarray | None
    ) -> tuple[list[ToolHit], float]:
        """(hits, how likely the pool holds a suitable tool). eligible: mask over the index."""
        ask, mask = signals.ask, signals.pool.cut_mask(eligible)
        if mask is not None and not mask.any():
            return [], 0.0
        ranker = self.ranker if ask.strategy == "ours" else None
        most = max(ask.k + _SPARE, RERANKED if ranker else 0)
        while True:
            ranking = BY_NAME[ask.strategy](signals, mask, most)
            ranking = rank_by_success(ranker, signals, ranking) if ranker else ranking
            # Rows of one twin group together, groups in the order of their best row.
            twins = self.index.twins[ranking.places]
            by_twin: dict[int, list[int]] = {}
            for row, group in enumerate(twins.tolist()):
                by_twin.setdefault(group, []).append(row)
            groups = list(by_twin.values())
            if len(groups) >= ask.k or len(ranking.places) < most:
                break
            most *= 2
        suitable = ranking.suitable
        if suitable is None:
            suitable = BY_NAME["ours"](signals, mask, 1).suitable or 0.0
        return self._make_hits(signals, ranking, groups[: ask.k]), suitable

    def _make_hits(
        self, signals: QuerySignals, ranking: ToolRanking, groups: list[list[int]]
    ) -> list[ToolHit]:
        heads = np.array([group[0] for group in groups], int)
        words = signals.list_shared(ranking.places[heads])
        parts = np.round(np.array([part[heads] for part in ranking.parts.values()], float), 4)
        hits = []
        for group, values, shared in zip(groups, parts.T.tolist(), words, strict=True):
            named = zip(ranking.parts, values, strict=True)
            scores = {name: value for name, value in named if value == value}
            place = int(ranking.places[group[0]])
            tool = self.index.tools[place]
            hit = ToolHit(
                tool_id=tool.tool_id,
                server_id=tool.server_id,
                tool=tool.tool,
                score=round(float(ranking.scores[group[0]]), 4),
                description=tool.description,
                contract_digest=tool.contract_digest,
                why={"view": _choose_best_view(scores), "scores": scores, "words": shared},
                twins=tuple(self.index.tools[int(ranking.places[i])].tool_id for i in group[1:]),
                flags=tool.flags,
                read_only=tool.read_only,
                reliability=self.tell_reliability(place),
            )
            hits.append(hit)
        return hits


def _choose_best_view(scores: Mapping[str, float]) -> str:
    """The view that matched best, since all views are on one scale; "words" if no cosine counts:
    the encoder does not read the question, or nothing is nearer than the pool's mean."""
    views = (*TOOL_VIEWS, *SERVER_VIEWS)
    positive = {name: scores[name] for name in views if scores.get(name, 0.0) > 0}
    return max(positive, key=lambda name: positive[name], default="words")


def open_router(place: Path, version: str | None = None) -> Router:
    """Loads a version (default: served) with its encoder. Raises IndexMissing or IndexBroken."""
    from assets.vectors.encoders.minilm import MiniLM
    from assets.vectors.encoders.saved import open_encoder

    index = load_index(place, version or read_served_version(place))
    encoder = None
    if not (place / "encoders").is_dir():  # not exported: the model with the adapter it merges
        model = MiniLM(place / "models" / index.adapter if index.adapter else None)
        if model.id == index.embedder:
            model.open()  # before the first question comes
            encoder = model
    if encoder is None:  # raises, and says what is missing, if there is none
        encoder = open_encoder(place, index.embedder, most_tokens=QUERY_TOKENS)
    return Router(index, encoder, read_blocked(place), _read_overlay(place, index, None))


class ServedRouter:
    """The router of the version served now. The old one answers while a new one loads, and stays if
    that fails (logged once). `opened`: from version (None: served) to router. `check` raises where
    nothing of the place may be loaded."""

    def __init__(
        self,
        place: Path,
        opened: OpenVersion | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._place, self._lock = place, Lock()
        self._open, self._check = opened or open_router, check
        self._router: Router | None = None
        self._marks: tuple[object, ...] = ()  # of what is served
        self._failed: tuple[object, ...] = ()  # marks of what could not be loaded
        self._failed_at = 0.0
        self._last_error: str | None = None
        self._loading: Thread | None = None
        self._listeners: list[Callable[[str], None]] = []

    def current(self) -> Router:
        """The router to ask now. Raises IndexMissing or IndexBroken if there is none at all."""
        router = self._router
        if router is None:
            with self._lock:
                if self._router is None:
                    marks = self._read_marks()
                    self._router = self._load_checked(marks, None)
                    self._marks = marks
                return self._router
        marks = self._read_marks()
        # What failed is tried again after a while; what was published since at once.
        waited = time.monotonic() - self._failed_at > _RETRY_S
        if marks != self._marks and (marks != self._failed or waited):
            with self._lock:
                if self._loading is None or not self._loading.is_alive():
                    self._loading = Thread(target=self._load, args=(marks,), daemon=True)
                    self._loading.start()
        return self._router or router

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Calls `callback(version)` after each swap, in the loading thread."""
        self._listeners.append(callback)

    def settle(self, timeout: float | None = None) -> Router:
        """For tests: waits until what is published is loaded or refused; the router then."""
        self.current()
        if self._loading is not None:
            self._loading.join(timeout)
        return self.current()

    def _load(self, marks: tuple[object, ...]) -> None:
        old = self._router
        try:
            new = self._load_checked(marks, old)
        except Exception as error:  # whatever it is, the old version goes on answering
            self._failed, self._failed_at = marks, time.monotonic()
            if str(error) != self._last_error:
                self._last_error = str(error)
                served = old.index.version[:12] if old else "nothing"
                _log.error("new router index not served, %s stays: %s", served, error)
            return
        self._router, self._marks, self._failed, self._last_error = new, marks, (), None
        if old is None or new.index.version != old.index.version:
            for callback in list(self._listeners):
                callback(new.index.version)

    def _load_checked(self, marks: tuple[object, ...], old: Router | None) -> Router:
        """What is served now, `old` with other blocked tools where the version is the same. Raises
        what the check does, and IndexBroken where a file changed after it."""
        if self._check is not None:
            self._check()
        version = read_served_version(self._place)
        if old is not None and old.index.version == version:
            blocked = read_blocked(self._place)
            new = old.renew(blocked, _read_overlay(self._place, old.index, old.overlay))
        else:
            new = self._open(self._place, version)
        if self._check is not None and self._read_marks() != marks:
            raise IndexBroken(f"{self._place}: it changed while it was read; ask again")
        return new

    def _read_marks(self) -> tuple[object, ...]:
        """Changes whenever HEAD.json, BLOCKED.json or the overlay is written."""
        marks = list[object]()
        for name in ("HEAD.json", BLOCKED, OVERLAY):
            try:
                stat = (self._place / "router" / name).stat()
                marks.append((stat.st_ino, stat.st_ctime_ns, stat.st_size))
            except OSError:
                marks.append(None)
        return tuple(marks)


def _read_overlay(
    place: Path, index: RouterIndex, old: ReliabilityOverlay | None
) -> ReliabilityOverlay | None:
    """The overlay of the place. One that cannot be read is logged and leaves the old one: it must
    hold back neither searches nor the quarantine's decisions."""
    try:
        return read_overlay(place, index)
    except OverlayBroken as error:
        _log.error("reliability not read, the last one stays: %s", error)
        return old
