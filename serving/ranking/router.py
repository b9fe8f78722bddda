"""The router: a question in words, the best tools out, each with the reason why."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.vectors.encoders.embedder import embed_queries, measure_reading
from assets.vectors.texts import SERVER_VIEWS, TOOL_VIEWS
from serving.index.errors import IndexBroken
from serving.index.model import Index
from serving.ranking.eligible import Blocked, Eligible
from serving.ranking.overlay import Overlay, Reliability
from serving.ranking.query import Answer, Ask, Hit, check_ask, read_ask
from serving.ranking.query_scores import Signals, normalise_vector, read_ask_texts
from serving.ranking.reranking import (
    RERANKED,
    Reranker,
    RerankQuestion,
    make_question,
    open_ranker,
    rank_by_success,
)
from serving.ranking.strategies import BY_NAME, Ranked

if TYPE_CHECKING:
    from assets.vectors.embed import Embedder

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
