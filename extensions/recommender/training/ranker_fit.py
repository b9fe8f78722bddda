"""Makes the weights that `extensions/recommender/reranking/` serves from a history of outcomes."""

from collections.abc import Sequence
from dataclasses import replace

from extensions.recommender.reranking.model import Weights
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example
from extensions.recommender.training.fitting.change import relax_changed
from extensions.recommender.training.fitting.choice import choose_variance
from extensions.recommender.training.fitting.posterior_fit import fit_posterior
from extensions.recommender.training.fitting.start import (
    TASK,
    FitSettings,
    make_prior,
    read_rows,
    replace_slopes,
    start_weights,
)

MOST_ROWS, MOST_OF_TOOL = 30_000, 200  # newest outcomes that a fit reads, in all and of one tool


def fit_reranker(
    outcomes: Sequence[Example], pool: Pool, settings: FitSettings | None = None, embedder: str = ""
) -> Weights:
    """The weights after these outcomes; without any, what orders as the retriever does."""
    settings = settings or FitSettings()
    kept = select_recent(outcomes)
    empty = start_weights(kept, pool, settings, embedder)
    if not kept:
        return empty
    by_kind = choose_variance(kept, pool, settings) if settings.choose else None
    if by_kind is not None:
        settings = replace_slopes(settings, by_kind)
    prior = make_prior(settings)
    rows, memory = read_rows(kept, pool, empty, settings)
    shared, levels = fit_posterior(rows, prior, settings.learn)
    discounted = relax_changed(rows, shared, levels)
    if discounted is not rows:
        shared, levels = fit_posterior(discounted, prior, settings.learn)
    hardness = float(levels.pop(TASK).variance[0])
    until = kept[-1].question.at  # what the log says later is learnt while serving
    facts = {"outcomes": len(kept), "of": len(outcomes), "until": until, "by_kind": by_kind}
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
