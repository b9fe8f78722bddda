"""Makes the weights that `serving/reranking/` serves from a history of outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from serving.reranking.features import (
    HAND,
    PAIR_FEATURES,
    QUERY_FEATURES,
    READ,
    Shape,
    fit_projection,
)
from serving.reranking.memory import MEMORY_FEATURES, Recalled
from serving.reranking.model import CLIENT, LEVELS, SERVER, TOOL, Reranker, Weights, count_shared
from serving.reranking.pool import TOOL_FEATURES, Pool
from serving.reranking.posterior import Level, Shared
from training.reranker.change import relax_changed
from training.reranker.examples import Example
from training.reranker.posterior_fit import Prior, Rows, fit_posterior

TASK = "task"  # level of the fit only: how hard a request is, which no features tell
MOST_ROWS, MOST_OF_TOOL = 30_000, 200  # newest outcomes that a fit reads, in all and of one tool


@dataclass(frozen=True)
class FitSettings:
    """How a reranker is fitted. `half_life_s`: after how long an outcome counts half (0: never)."""

    shape: Shape = field(default_factory=Shape)
    half_life_s: float = 0.0
    learn: bool = True
    variances: dict[str, float] = field(
        default_factory=lambda: {
            "constant": 4.0, "pair": 0.3, "memory": 0.3, "tool": 0.05, "asked": 0.05,
            "query": 0.1, "like": 0.1, "cross": 0.1,
        }
    )  # fmt: skip
    levels: dict[str, tuple[float, float]] = field(
        default_factory=lambda: {
            SERVER: (0.2, 0.1),
            TOOL: (0.6, 0.2),
            CLIENT: (0.2, 0.02),
            TASK: (0.3, 0.0),
        }
    )


def fit_reranker(
    outcomes: Sequence[Example], pool: Pool, settings: FitSettings | None = None, embedder: str = ""
) -> Weights:
    """The weights after these outcomes; without any, what orders as the retriever does."""
    settings = settings or FitSettings()
    kept = select_recent(outcomes)
    empty = _start_weights(kept, pool, settings, embedder)
    prior = _make_prior(settings)
    if not kept:
        return empty
    rows, memory = _read_rows(kept, pool, empty, settings)
    shared, levels = fit_posterior(rows, prior, settings.learn)
    discounted = relax_changed(rows, shared, levels)
    if discounted is not rows:
        shared, levels = fit_posterior(discounted, prior, settings.learn)
    hardness = float(levels.pop(TASK).variance[0])
    until = kept[-1].question.at  # what the log says later is learnt while serving
    facts = {"outcomes": len(kept), "of": len(outcomes), "until": until}
    return replace(
        empty, shared=shared, levels=levels, hardness=hardness, facts=facts, memory=memory
    )


def select_recent(outcomes: Sequence[Example]) -> list[Example]:
    """The newest outcomes in the order of time: of one tool no more than 200, 30,000 in all."""
    newest = sorted(range(len(outcomes)), key=lambda row: outcomes[row].question.at, reverse=True)
    count: dict[int, int] = {}
    kept = []
    for row in newest:
        place = outcomes[row].place
        if (seen := count.get(place, 0)) < MOST_OF_TOOL and outcomes[row].weight > 0:
            count[place] = seen + 1
            kept.append(outcomes[row])
        if len(kept) == MOST_ROWS:
            break
    return kept[::-1]


def _start_weights(
    outcomes: Sequence[Example], pool: Pool, settings: FitSettings, embedder: str
) -> Weights:
    shape = settings.shape
    dims = max(shape.query, shape.tool, shape.cross, shape.block)
    texts = {one.question.text: one.question.vector for one in outcomes}
    asked = np.array(list(texts.values()), np.float32).reshape(len(texts), pool.vectors.shape[1])
    projection = fit_projection(pool.vectors, asked, dims)
    prior = _make_prior(settings)
    variance = np.empty(len(prior.mean))
    for name, where in prior.groups.items():
        variance[where] = prior.variances[name]
    width = 1 + shape.block
    levels = {
        name: Level(np.array([own[0], *[own[1]] * (width - 1)]))
        for name, own in settings.levels.items()
        if name != TASK
    }
    centre, scale = _list_scales()
    return Weights(
        shape, projection, centre, scale, Shared(prior.mean.copy(), np.diag(variance)), levels,
        settings.levels[TASK][0], embedder, settings.half_life_s,
    )  # fmt: skip


def _list_scales() -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale of the HAND features before any outcome was seen."""
    known = {
        "cosine": (0.4, 0.2), "standing among candidates": (1.0, 1.5),
        "behind the best": (-0.15, 0.15), "rank by cosine": (1.5, 1.3),
        "retriever's rank": (1.5, 1.3), "words shared": (0.25, 0.2),
        "words of the name asked": (0.2, 0.3), "description length": (4.8, 1.0),
        "words in the name": (2.5, 1.2), "opaque name": (0.15, 0.25),
        "name told in description": (0.5, 0.4), "parameters": (1.2, 0.7),
        "required parameters": (0.8, 0.6), "documented parameters": (0.6, 0.4),
        "siblings": (2.5, 1.0), "like what it did": (0.0, 0.3),
        "like what it failed at": (0.0, 0.3),
        "drawn to what it did": (0.0, 0.1), "tried": (1.0, 1.0),
        "words asked": (2.8, 0.6), "numbers": (0.5, 0.8),
        "address": (0.1, 0.3), "path": (0.1, 0.3), "quoted": (0.15, 0.35), "candidates": (3.0, 1.0),
    }  # fmt: skip
    pairs = [known.get(name, (0.0, 1.0)) for name in READ]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def _make_prior(settings: FitSettings) -> Prior:
    shape, start, groups = settings.shape, 0, {}
    sizes = {
        "constant": 1, "pair": len(PAIR_FEATURES), "tool": len(TOOL_FEATURES),
        "asked": len(QUERY_FEATURES), "memory": len(MEMORY_FEATURES), "query": shape.query,
        "like": shape.tool, "cross": shape.cross**2,
    }  # fmt: skip
    for name, size in sizes.items():
        groups[name] = slice(start, start + size)
        start += size
    mean = np.zeros(count_shared(shape))
    mean[HAND.index("standing among candidates")] = 0.4
    mean[HAND.index("behind the best")] = 0.4
    return Prior(mean, groups, settings.variances, settings.levels)


def _read_rows(
    outcomes: Sequence[Example], pool: Pool, weights: Weights, settings: FitSettings
) -> tuple[Rows, dict[str, Recalled]]:
    """The outcomes as the posterior reads them: each with what was known just before it."""
    ranker = Reranker(weights, pool)
    shared, local, keys = [], [], {name: [] for name in LEVELS}
    for one in outcomes:
        place = np.array([one.place])
        features, own = ranker.measure(one.question, place)
        shared.append(features[0])
        local.append(own)
        ranker.remember(one.question, one.place, one.success, one.weight)
        found = ranker.list_keys(one.question, place)
        for name in LEVELS:
            keys[name].append(found[name][0] if name in found else None)
    keys[TASK] = [one.task or None for one in outcomes]
    codes, names = {}, {}
    for name, held in keys.items():
        names[name] = sorted({key for key in held if key is not None})
        place_of = {key: place for place, key in enumerate(names[name])}
        codes[name] = np.array([-1 if key is None else place_of[key] for key in held], int)
    at = np.array([one.question.at for one in outcomes], float)
    weight = np.array([one.weight for one in outcomes], float)
    if settings.half_life_s > 0:
        weight = weight * 0.5 ** ((at.max() - at) / settings.half_life_s)
    success = np.array([one.success for one in outcomes], float)
    rows = Rows(
        np.array(shared), np.array(local), codes, names, success, weight, at, frozenset([TASK])
    )
    return rows, ranker.weights.memory
