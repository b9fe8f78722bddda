"""The hook for a trained reranker: what it is asked, and how its order becomes the answer.

An installed extension opens the reranker of an index: the entry point `toolmill.rerankers` names a
function `(Index) -> Reranker | None`, which may raise IndexBroken. Without it, or for an index
without a reranker, the router's order stays.
"""

import logging
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from serving.index.model import RouterIndex
from serving.ranking.signals import QuerySignals
from serving.ranking.strategies import ToolRanking
from warehouse.extensions import RERANKERS, load_extensions

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
    """A trained model of which tool will succeed."""

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
    parts = {name: values[rows] for name, values in ranked.parts.items()}
    parts |= {"fused": ranked.scores[rows], "success": success}
    return ToolRanking(ranked.places[rows], scores, parts, ranked.suitable)
