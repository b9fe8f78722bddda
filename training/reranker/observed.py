"""Observations of calls as examples: those whose words were kept, of tools that the pool holds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from assets.outcomes.reliability.observation import Observation
from assets.vectors.encoders.embedder import embed_queries
from serving.reranking.features import Question
from serving.reranking.pool import Pool
from training.reranker.examples import Example

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder

CANDIDATES = 100
OLD_CONTRACT = 0.3  # of an outcome's weight that holds for a tool under another contract


@dataclass(frozen=True)
class Observed:
    """Examples in the order of time, and how many observations were left out by reason."""

    examples: list[Example]
    left_out: Counter[str]


def make_observed(
    observations: Sequence[Observation], pool: Pool, embedder: "Embedder"
) -> Observed:
    """Candidates are the nearest tools of the pool as it is now: what a search showed is in the log
    for as long as its words are, but tools come and go."""
    left_out: Counter[str] = Counter()
    usable = []
    for one in sorted(observations, key=lambda one: one.at):
        reason = _find_reason(one, pool)
        if reason:
            left_out[reason] += 1
        else:
            usable.append(one)
    asked = list(dict.fromkeys(one.query for one in usable))
    vectors = embed_queries(embedder, asked) if asked else []
    questions = {
        text: Question(text, vector, _list_nearest(pool, vector))
        for text, vector in zip(asked, vectors, strict=True)
    }
    examples = [_make_example(one, pool, questions[one.query]) for one in usable]
    return Observed(examples, left_out)


def _find_reason(one: Observation, pool: Pool) -> str | None:
    """Why nothing can be learnt from an observation; None where something can."""
    if not one.query.strip():
        return "words not kept"
    if one.tool_id not in pool.places:
        return "unknown tool"
    if not (0 < one.weight <= 1 and np.isfinite(one.at)):
        return "no weight"
    return None


def _make_example(one: Observation, pool: Pool, question: Question) -> Example:
    place = pool.places[one.tool_id]
    known = pool.tools[place].contract_digest
    held = not known or known == one.contract_digest
    weight = one.weight if held else one.weight * OLD_CONTRACT
    asked = replace(question, at=one.at, client=one.client)
    return Example(asked, place, one.success, weight, one.search_id or one.query)


def _list_nearest(pool: Pool, vector: np.ndarray) -> np.ndarray:
    cosines = pool.vectors @ vector
    return np.argsort(-cosines, kind="stable")[:CANDIDATES]
