"""The orders of the pool: ours, and the four baselines that it is measured against. A mask is over
the tools of the query's pool (`QueryPool.cut_mask`)."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from assets.vectors.texts import SERVER_VIEWS
from serving.index.model import RELIABILITY, RouterIndex
from serving.ranking.signals import CANDIDATES, QuerySignals, choose_candidates, weigh_evidence
from warehouse.extensions import RERANKERS, load_extensions

RRF_K = 60  # the constant of Cormack et al. 2009, which every product keeps
MCP_ZERO_SERVERS = 5
Mask = np.ndarray | None


@dataclass(frozen=True)
class ToolRanking:
    """Places of tools, best first, with their scores and the parts of these by name (not a number
    if a part was not computed). `suitable` is known if the strategy weighs it."""

    places: np.ndarray
    scores: np.ndarray
    parts: dict[str, np.ndarray] = field(default_factory=dict)
    suitable: float | None = None


def _make_ranking(
    signals: QuerySignals, rows: np.ndarray, scores: np.ndarray, parts: dict[str, np.ndarray]
) -> ToolRanking:
    return ToolRanking(signals.pool.find_places(rows), scores, parts)


def rank_dense(signals: QuerySignals, mask: Mask, most: int) -> ToolRanking:
    rows = find_top(signals.dense, mask, most)
    return _make_ranking(signals, rows, signals.dense[rows], {"full": signals.dense[rows]})


def rank_bm25(signals: QuerySignals, mask: Mask, most: int) -> ToolRanking:
    rows = find_top(signals.lexical, mask, most)
    return _make_ranking(signals, rows, signals.lexical[rows], {"words": signals.lexical[rows]})


def rank_rrf(signals: QuerySignals, mask: Mask, most: int) -> ToolRanking:
    """Plain reciprocal rank fusion of both; without a word in common there is no lexical rank."""
    total = np.zeros(len(signals.dense), np.float32)
    for scores in (signals.dense, signals.lexical):
        ranked = find_top(scores, mask, len(scores))
        if scores is signals.lexical:
            ranked = ranked[scores[ranked] > 0]
        total[ranked] += 1 / (RRF_K + 1 + np.arange(len(ranked), dtype=np.float32))
    rows = find_top(total, mask, most)
    scores_of = {"full": signals.dense[rows], "words": signals.lexical[rows]}
    return _make_ranking(signals, rows, total[rows], scores_of)


def rank_mcp_zero(signals: QuerySignals, mask: Mask, most: int) -> ToolRanking:
    """MCP-Zero's algorithm (arXiv 2506.01056): the five best servers by the better of description
    and summary, within them (s x t) x max(s, t). Servers without an eligible tool are passed over;
    the others follow by server, so that any number of hits can be asked for."""
    best = np.max([signals.servers(name) for name in SERVER_VIEWS], axis=0)
    server_of = signals.pool.owners
    able = np.ones(len(best), bool)
    if mask is not None:
        able = np.bincount(server_of[mask], minlength=len(best)) > 0
    chosen = np.zeros(len(best), bool)
    chosen[find_top(best, able, MCP_ZERO_SERVERS)] = True
    s, t = best[server_of], signals.dense
    score = (s * t) * np.maximum(s, t)
    score = np.where(chosen[server_of], score, score - 10)
    rows = find_top(score, mask, most)
    return _make_ranking(signals, rows, score[rows], {"server": s[rows], "full": t[rows]})


def rank_fused(signals: QuerySignals, mask: Mask, most: int) -> ToolRanking:
    """Fuses all views and fields of the candidates by fitted weights; then the rough order."""
    fusion = signals.index.fusion
    candidates = choose_candidates(signals, mask)
    suits = fusion.score(candidates.features)
    score = suits
    if signals.overlay is not None:
        score = suits + np.float32(RELIABILITY) * signals.overlay.lift[candidates.places]
    order = np.lexsort((candidates.places, -np.round(score.astype(np.float64), 6)))[:most]
    places, scores = candidates.places[order], score[order]
    features = {name: values[order] for name, values in candidates.features.items()}
    suitable = fusion.suitable(weigh_evidence(candidates, suits))
    if most > len(places) == CANDIDATES:
        others = find_top(candidates.rough, mask, most + CANDIDATES)
        others = signals.pool.find_places(others)
        others = others[~np.isin(others, places)][: most - len(places)]
        behind = scores[-1] - 1 - np.arange(len(others), dtype=np.float32) * np.float32(0.01)
        places, scores = np.concatenate([places, others]), np.concatenate([scores, behind])
        unknown = np.full(len(others), np.nan, np.float32)
        features = {name: np.concatenate([values, unknown]) for name, values in features.items()}
    return ToolRanking(places, scores, features, suitable)


BY_NAME: dict[str, Callable[[QuerySignals, Mask, int], ToolRanking]] = {
    "ours": rank_fused,
    "mcp-zero": rank_mcp_zero,
    "dense": rank_dense,
    "bm25": rank_bm25,
    "rrf": rank_rrf,
}


def find_top(scores: np.ndarray, mask: Mask, most: int) -> np.ndarray:
    """Places of the `most` best scores where `mask` holds, best first, ties by place."""
    places = np.arange(len(scores)) if mask is None else np.flatnonzero(mask)
    eligible = scores if mask is None else scores[places]
    if most < len(places):
        near = np.argpartition(-eligible, most - 1)[:most]
        # All that tie with the last one, so that their places decide between them.
        near = np.flatnonzero(eligible >= eligible[near].min()) if len(near) else near
        places, eligible = places[near], eligible[near]
    order = np.lexsort((places, -np.round(eligible.astype(np.float64), 6)))[:most]
    return places[order]


RERANKED = 100  # hits that are reordered


@dataclass(frozen=True)
class RerankQuestion:
    """One question: its words, its unit vector [dim], the places of the candidates in the router's
    order, when it was asked (epoch seconds), and by which client (`write_client_key`) if known."""

    text: str
    vector: np.ndarray
    candidates: np.ndarray
    at: float = 0.0
    client: str | None = None


class Reranker(Protocol):
    def predict_success(self, question: RerankQuestion) -> np.ndarray:
        """P(success) of each candidate, float [candidates]."""
        ...


def open_ranker(index: RouterIndex) -> Reranker | None:
    """The index's own reranker, None if it has none that can be used. Raises IndexBroken."""
    if index.reranker is None or index.folder is None:
        return None
    openers = list(load_extensions(RERANKERS).values())
    if not openers:
        logging.getLogger(__name__).warning(
            "router index %s has a reranker, but no package provides %s; searches keep the"
            " router's order",
            *(index.version[:12], RERANKERS),
        )
        return None
    return openers[0](index)


def write_client_key(source: str, client: str | None) -> str | None:
    """The key of one client of a source (`token:NAME`); None if the client is not known."""
    return f"{source} {client}" if client else None


def make_question(signals: QuerySignals, places: np.ndarray) -> RerankQuestion:
    """The question for the reranker, with the tools at `places` as candidates."""
    ask = signals.ask
    return RerankQuestion(signals.tool_text, signals.tool, places, time.time(), ask.client)


def rank_by_success(ranker: Reranker, signals: QuerySignals, ranked: ToolRanking) -> ToolRanking:
    """The ranking with its first hundred in the order of P(success), which becomes their score; the
    others follow unchanged. `parts` holds both scores: `success` and `fused`."""
    heads = ranked.places[:RERANKED]
    if not len(heads):
        return ranked
    p = ranker.predict_success(make_question(signals, heads)).astype(np.float32)
    order = np.argsort(-p, kind="stable")
    tail = np.arange(len(heads), len(ranked.places))
    behind = p.min() - (ranked.scores[len(heads) - 1] - ranked.scores[tail])
    scores = np.concatenate([p[order], np.minimum(behind, p.min())])
    rows = np.concatenate([order, tail])
    success = np.concatenate([p[order], np.full(len(tail), np.nan, np.float32)])
    scores_of = {name: values[rows] for name, values in ranked.parts.items()}
    scores_of |= {"fused": ranked.scores[rows], "success": success}
    return ToolRanking(ranked.places[rows], scores, scores_of, ranked.suitable)
