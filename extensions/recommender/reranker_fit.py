"""What a fit starts from: its settings, weights before any outcome, and outcomes as rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from extensions.recommender.posterior import BlockLevel, SharedPosterior
from extensions.recommender.posterior_fit import (
    OutcomeRows,
    WeightPrior,
    fill_level,
    fill_variances,
    fit_posterior,
    relax_changed,
)
from extensions.recommender.question_features import (
    CONTRACT_FEATURES,
    MEMORY_FEATURES,
    PAIR_FEATURES,
    QUERY_FEATURES,
    SHARED_FEATURES,
    FeatureShape,
    ToolMemory,
    choose_families,
    fit_projection,
    fit_request_space,
)
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.reranker import (
    CLIENT,
    FAMILY,
    LEVELS,
    SERVER,
    TOOL,
    BayesianReranker,
    RerankerWeights,
    count_local,
    count_shared,
)
from extensions.recommender.tool_pool import TOOL_FEATURES, ToolPool

TASK = "task"  # level of the fit only: how hard a request is, which no features tell
_BY_KIND = (FAMILY, TOOL)  # levels that differ by kind of request


@dataclass(frozen=True)
class FitSettings:
    """How a reranker is fitted. `levels`: variances of each level's intercept and slopes; `choose`:
    whether a long log chooses the slopes of tools and families."""

    shape: FeatureShape = field(default_factory=FeatureShape)
    learn: bool = True
    choose: bool = True
    variances: dict[str, float] = field(
        default_factory=lambda: {
            "constant": 4.0, "pair": 0.1, "memory": 0.3, "tool": 0.05, "asked": 0.05,
            "query": 0.1, "like": 0.1, "cross": 0.1,
        }
    )  # fmt: skip
    levels: dict[str, tuple[float, float]] = field(
        default_factory=lambda: {
            SERVER: (0.2, 0.1),
            FAMILY: (0.05, 2.0),
            TOOL: (0.6, 2.0),
            CLIENT: (0.2, 0.02),
            TASK: (0.3, 0.0),
        }
    )


def replace_slopes(settings: FitSettings, variance: float) -> FitSettings:
    """The settings with another variance between tools and families by kind of request."""
    other = {name: (settings.levels[name][0], variance) for name in _BY_KIND}
    return replace(settings, levels=settings.levels | other)


def start_weights(
    outcomes: Sequence[OutcomeExample], pool: ToolPool, settings: FitSettings, embedder: str = ""
) -> RerankerWeights:
    """What orders as the retriever does, in the spaces that these outcomes span."""
    shape = settings.shape
    dims = max(shape.query, shape.tool, shape.cross)
    texts = {outcome.question.text: outcome.question.vector for outcome in outcomes}
    asked = np.array(list(texts.values()), np.float32).reshape(len(texts), pool.vectors.shape[1])
    projection = fit_projection(pool.vectors, asked, dims)
    prior = make_prior(settings)
    levels = {
        name: BlockLevel(fill_level(variances, count_local(shape, name)))
        for name, variances in settings.levels.items()
        if name != TASK
    }
    centre, scale = _list_scales()
    return RerankerWeights(
        shape,
        projection,
        fit_request_space(outcomes, pool, shape.block),
        choose_families(outcomes, pool),
        centre,
        scale,
        SharedPosterior(prior.mean.copy(), np.diag(fill_variances(prior, prior.variances))),
        levels,
        settings.levels[TASK][0],
        embedder,
    )


def _list_scales() -> tuple[np.ndarray, np.ndarray]:
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
    pairs = [known.get(name, (0.0, 1.0)) for name in SHARED_FEATURES]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def make_prior(settings: FitSettings) -> WeightPrior:
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
    mean[CONTRACT_FEATURES.index("standing among candidates")] = 0.4
    mean[CONTRACT_FEATURES.index("behind the best")] = 0.4
    return WeightPrior(mean, groups, settings.variances, settings.levels)


def read_rows(
    outcomes: Sequence[OutcomeExample],
    pool: ToolPool,
    weights: RerankerWeights,
    settings: FitSettings,
) -> tuple[OutcomeRows, dict[str, ToolMemory]]:
    """The outcomes as the posterior reads them: each with what was known just before it."""
    ranker = BayesianReranker(weights, pool)
    shared, local, keys = [], [], {name: [] for name in LEVELS}
    for item in outcomes:
        place = np.array([item.place])
        features, own = ranker.measure(item.question, place)
        shared.append(features[0])
        local.append(own)
        ranker.remember(item.question, item.place, item.success, item.weight)
        found = ranker.list_keys(item.question, place)
        for name in LEVELS:
            keys[name].append(found[name][0] if name in found else None)
    keys[TASK] = [outcome.task or None for outcome in outcomes]
    codes, names = {}, {}
    for name, held in keys.items():
        names[name] = sorted({key for key in held if key is not None})
        place_of = {key: place for place, key in enumerate(names[name])}
        codes[name] = np.array([-1 if key is None else place_of[key] for key in held], int)
    at = np.array([outcome.question.at for outcome in outcomes], float)
    weight = np.array([outcome.weight for outcome in outcomes], float)
    success = np.array([outcome.success for outcome in outcomes], float)
    widths = {name: count_local(settings.shape, name) for name in LEVELS} | {TASK: 1}
    rows = OutcomeRows(np.array(shared), np.array(local), codes, names, success, weight, at, widths)
    return rows, ranker.weights.memory


VARIANCES = (0.3, 1.0, 4.0)
USUAL = 2.0  # where the log is too short to tell
_NEWEST = 2_000  # outcomes that are read for it
_EARLIER = 0.7  # of them are learnt from
_FEWEST, _MOST = 30, 200  # later successes
_CANDIDATES = 20
_SWEEPS = 8


def choose_variance(
    outcomes: Sequence[OutcomeExample], pool: ToolPool, settings: FitSettings
) -> float:
    """One of VARIANCES: that with which the earlier of these outcomes, which are in the order of
    time, tell best by what tools the later requests were done."""
    newest = outcomes[-_NEWEST:]
    cut = int(_EARLIER * len(newest))
    earlier = newest[:cut]
    done = [item for item in newest[cut:] if item.success and len(item.question.candidates) > 1]
    done = done[:: len(done) // _MOST + 1]
    if len(done) < _FEWEST:
        return USUAL
    start = start_weights(earlier, pool, settings)
    rows, memory = read_rows(earlier, pool, start, settings)
    losses = []
    for variance in VARIANCES:
        prior = make_prior(replace_slopes(settings, variance))
        shared, levels = fit_posterior(rows, prior, settings.learn, _SWEEPS)
        hardness = float(levels.pop(TASK).variance[0])
        weights = replace(start, shared=shared, levels=levels, hardness=hardness, memory=memory)
        losses.append(measure_loss(BayesianReranker(weights, pool), done))
    return VARIANCES[int(np.argmin(losses))]


def measure_loss(ranker: BayesianReranker, done: Sequence[OutcomeExample]) -> float:
    """Mean surprise at which of a request's first candidates did it, by their odds of success."""
    losses = []
    for item in done:
        near = item.question.candidates[:_CANDIDATES]
        places = np.concatenate([[item.place], near[near != item.place]])
        p = np.clip(ranker.score(item.question, places).p, 1e-9, 1 - 1e-9)
        odds = p / (1 - p)
        losses.append(-np.log(odds[0] / odds.sum()))
    return float(np.mean(losses))


MOST_ROWS, MOST_OF_TOOL = 30_000, 200  # newest outcomes that a fit reads, in all and of one tool


def fit_reranker(
    outcomes: Sequence[OutcomeExample],
    pool: ToolPool,
    settings: FitSettings | None = None,
    embedder: str = "",
) -> RerankerWeights:
    """The weights after these outcomes; without any, what orders as the retriever does."""
    settings = settings or FitSettings()
    recent = select_recent(outcomes)
    empty = start_weights(recent, pool, settings, embedder)
    if not recent:
        return empty
    by_kind = choose_variance(recent, pool, settings) if settings.choose else None
    if by_kind is not None:
        settings = replace_slopes(settings, by_kind)
    prior = make_prior(settings)
    rows, memory = read_rows(recent, pool, empty, settings)
    shared, levels = fit_posterior(rows, prior, settings.learn)
    discounted = relax_changed(rows, shared, levels)
    if discounted is not rows:
        shared, levels = fit_posterior(discounted, prior, settings.learn)
    hardness = float(levels.pop(TASK).variance[0])
    until = recent[-1].question.at  # what the log says later is learnt while serving
    facts = {"outcomes": len(recent), "of": len(outcomes), "until": until, "by_kind": by_kind}
    return replace(
        empty, shared=shared, levels=levels, hardness=hardness, facts=facts, memory=memory
    )


def select_recent(outcomes: Sequence[OutcomeExample]) -> list[OutcomeExample]:
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
