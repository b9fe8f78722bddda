"""How much tools differ by kind of request, chosen by the log: what finds its later successes best.

Where any tool may do what is asked, most of a failure is the tool's own; where each does its own
kind of request, little is. The variance of the slopes that a fit learns with the weights (EM) moves
too slowly from where it starts to tell one from the other. A log holds calls of tools that stood
high already, so what foretells those best may order the others badly: compared is how sure each
choice is, among the candidates of a later request, of the tool that did it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from extensions.recommender.reranking.model import Reranker
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example
from extensions.recommender.training.fitting.posterior_fit import fit_posterior
from extensions.recommender.training.fitting.start import (
    TASK,
    FitSettings,
    make_prior,
    read_rows,
    replace_slopes,
    start_weights,
)

VARIANCES = (0.3, 1.0, 4.0)
USUAL = 2.0  # where the log is too short to tell
_NEWEST = 2_000  # outcomes that are read for it
_EARLIER = 0.7  # of them are learnt from
_FEWEST, _MOST = 30, 200  # later successes
_CANDIDATES = 20
_SWEEPS = 8


def choose_variance(outcomes: Sequence[Example], pool: Pool, settings: FitSettings) -> float:
    """One of VARIANCES: that with which the earlier of these outcomes, which are in the order of
    time, tell best by what tools the later requests were done."""
    newest = outcomes[-_NEWEST:]
    cut = int(_EARLIER * len(newest))
    earlier = newest[:cut]
    done = [one for one in newest[cut:] if one.success and len(one.question.candidates) > 1]
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
        losses.append(measure_loss(Reranker(weights, pool), done))
    return VARIANCES[int(np.argmin(losses))]


def measure_loss(ranker: Reranker, done: Sequence[Example]) -> float:
    """The mean surprise that of a request's first candidates it was this one that did it, where
    each is as likely as its odds of success."""
    losses = []
    for one in done:
        near = one.question.candidates[:_CANDIDATES]
        places = np.concatenate([[one.place], near[near != one.place]])
        p = np.clip(ranker.score(one.question, places).p, 1e-9, 1 - 1e-9)
        odds = p / (1 - p)
        losses.append(-np.log(odds[0] / odds.sum()))
    return float(np.mean(losses))
