"""The first hundred of the fused ranking, in the order of how likely each is to succeed."""

import logging
import time

import numpy as np

from assets.vectors.texts import FULL
from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.file import BadReranker, OldReranker, open_reranker
from extensions.recommender.reranking.model import Reranker
from extensions.recommender.reranking.pool import Pool, ToolFacts
from serving.index.errors import IndexBroken
from serving.index.model import RERANKER_FILE, Index
from serving.ranking.query_scores import Signals
from serving.ranking.strategies import Ranked

RERANKED = 100


def open_ranker(index: Index) -> Reranker | None:
    """The index's own trained reranker over its tools; None where it has none, one of an earlier
    version of this program, or one that was deleted. Raises IndexBroken."""
    if index.reranker is None or index.folder is None:
        return None
    try:
        return open_reranker(index.folder / RERANKER_FILE, open_pool(index), index.embedder)
    except (OldReranker, FileNotFoundError) as error:
        logging.getLogger(__name__).warning("%s; searches keep the router's order", error)
        return None
    except BadReranker as error:
        raise IndexBroken(f"router index {index.version[:12]}: {error}") from error


def open_pool(index: Index) -> Pool:
    """The index's tools as a reranker reads them. Raises IndexBroken."""
    facts = [
        ToolFacts(tool.tool_id, tool.server_id, index.contract(place), tool.contract_digest)
        for place, tool in enumerate(index.tools)
    ]
    pool = Pool(facts, index.views[FULL].vectors)
    _ = pool.features, pool.words  # before the first question waits for them
    return pool


def make_question(signals: Signals, places: np.ndarray) -> Question:
    """What the reranker is asked: the words, their vector, the candidates as they were ranked, and
    by whom."""
    return Question(signals.tool_text, signals.tool, places, time.time(), signals.ask.client)


def rank_by_success(ranker: Reranker, signals: Signals, ranked: Ranked) -> Ranked:
    """The ranking with its first hundred in the order of P(success), which is their score then; the
    rest follow as they were. `parts` tell both: `success` and `fused`."""
    heads = ranked.places[:RERANKED]
    if not len(heads):
        return ranked
    p = ranker.score(make_question(signals, heads)).p.astype(np.float32)
    order = np.argsort(-p, kind="stable")
    rest = np.arange(len(heads), len(ranked.places))
    behind = p.min() - (ranked.scores[len(heads) - 1] - ranked.scores[rest])
    scores = np.concatenate([p[order], np.minimum(behind, p.min())])
    every = np.concatenate([order, rest])
    success = np.concatenate([p[order], np.full(len(rest), np.nan, np.float32)])
    parts = {name: values[every] for name, values in ranked.parts.items()}
    parts |= {"fused": ranked.scores[every], "success": success}
    return Ranked(ranked.places[every], scores, parts, ranked.suitable)
