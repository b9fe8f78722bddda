"""What is known of each candidate for one question, as numbers that mean the same by any encoder.

Cosines are told in standard deviations above the pool's mean and word scores as shares of the
pool's best, so that weights fitted with one encoder hold for another. The first product and one
BM25 choose some hundred candidates; the other views are only looked at for those.
"""

from dataclasses import dataclass

import numpy as np

from assets.vectors.texts import ASKED, FULL, SERVER_VIEWS
from serving.index.coarse_search import list_nearly_best
from serving.ranking.query_scores import TINY, Signals

CANDIDATES = 300  # hold 82% of the right tools of the corpus among 12,600; 100 hold 75%
SERVER, WORDS, COVERAGE = "server", "joint words", "coverage"
ABOUT, NAME = "about words", "name"
UNREAD_WORDS = "unread joint words"


@dataclass(frozen=True)
class Candidates:
    """Places of the candidates and their features, each [candidates]; `rough` orders the pool."""

    places: np.ndarray
    features: dict[str, np.ndarray]
    rough: np.ndarray  # float32 [tools]


def choose_candidates(
    signals: Signals, mask: np.ndarray | None, most: int = CANDIDATES
) -> Candidates:
    """The `most` best tools at first sight, in the order of their places, with their features."""
    index = signals.index
    mean, spread = signals.standing(FULL)
    words = signals.words
    trust = signals.trust(FULL)
    rough = signals.glimpse[FULL] * (trust / np.float32(spread)) + words * np.float32(4)
    shift = trust * np.float32(mean / spread)
    rough += (_score_servers(signals) - shift).take(index.server_of)
    places = _choose_best(rough, mask, most)
    owners = index.server_of[places]
    own = (signals.exact(FULL, places) - mean) / spread * trust
    features = {
        FULL: own,
        SERVER: _measure_server(signals, owners),
        WORDS: words[places],
        COVERAGE: signals.cover(places),
        ABOUT: _scale_values(signals.field("about"))[places],
        NAME: signals.match_names(places),
        UNREAD_WORDS: words[places] * (1 - trust),
    }
    features |= _score_requests(signals, places, own, (mean, spread))
    return Candidates(places, features, rough)


def _score_servers(signals: Signals) -> np.ndarray:
    """What each server adds at first sight, float32 [servers]: nothing without a description."""
    standing = {name: signals.standing(name) for name in SERVER_VIEWS}
    seen = [
        (signals.glimpse[name] - np.float32(mean)) / np.float32(spread)
        for name, (mean, spread) in standing.items()
    ]
    best = np.maximum(*seen) * (np.float32(0.7) * signals.trust(SERVER))
    found = best + _scale_values(signals.server_words)
    return np.where(signals.described, found, np.float32(0))


def _measure_server(signals: Signals, owners: np.ndarray) -> np.ndarray:
    """Cosine to the listing of each candidate's server, 0 (as of a middling one) without any."""
    mean, spread = signals.standing(SERVER)
    cosine = (signals.exact(SERVER, owners) - mean) / spread * signals.trust(SERVER)
    return np.where(signals.described[owners], cosine, np.float32(0))


def weigh_evidence(found: Candidates, scores: np.ndarray) -> dict[str, float]:
    """What speaks for the pool holding a suitable tool, from candidates and their fused scores."""
    if not len(scores):
        return {}
    order = np.argsort(-scores)
    top, best = order[0], float(scores[order[0]])
    tail = scores[order[1:]]
    near = float(scores[order[min(10, len(order) - 1)]])
    seen = (FULL, SERVER, COVERAGE, NAME)
    return {
        **{f"most {name}": float(found.features[name].max()) for name in seen},
        **{f"{name} of best": float(found.features[name][top]) for name in seen},
        "best": best,
        "lead": best - float(tail[0]) if len(tail) else 0.0,
        "lead of ten": best - near,
    }


def _score_requests(
    signals: Signals, places: np.ndarray, own: np.ndarray, standing: tuple[float, float]
) -> dict[str, np.ndarray]:
    """The best cosine to a request that was written for the tool, above its own text's; nothing
    where the index holds none."""
    view = signals.index.views.get(ASKED)
    if view is None:
        return {}
    mean, spread = standing
    start = np.searchsorted(view.owners, places)
    end = np.searchsorted(view.owners, places, side="right")
    out = np.zeros(len(places), np.float32)
    for at in np.flatnonzero(end > start).tolist():
        cosine = float((view.vectors[start[at] : end[at]] @ signals.tool).max())
        out[at] = (cosine - mean) / spread * signals.trust(FULL)
    return {ASKED: np.where(end > start, np.maximum(out - own, 0.0), 0.0).astype(np.float32)}


def _choose_best(scores: np.ndarray, mask: np.ndarray | None, most: int) -> np.ndarray:
    """Places of the `most` best where `mask` holds, in rising order; of equal ones the first."""
    places = np.arange(len(scores)) if mask is None else np.flatnonzero(mask)
    held = scores if mask is None else scores[places]
    near = list_nearly_best(held, most)
    if most < len(near):
        near = np.sort(near[np.argsort(-held[near], kind="stable")[:most]])
    return places[near]


def _scale_values(values: np.ndarray) -> np.ndarray:
    return values / max(float(values.max(initial=0.0)), TINY)
