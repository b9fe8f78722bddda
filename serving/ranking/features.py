"""What is known of each candidate for one question, as numbers that mean the same by any encoder.

Cosines are told in standard deviations above the pool's mean and word scores as shares of the
pool's best, so that weights fitted with one encoder hold for another. The first product and one
BM25 choose some hundred candidates; the other views are only looked at for those.
"""

import re
from dataclasses import dataclass

import numpy as np

from assets.vectors.lexical import FUNCTION_WORDS
from assets.vectors.texts import ASKED, FULL, SERVER_VIEWS, TOOL_VIEWS
from serving.ranking.query_scores import Signals

CANDIDATES = 300  # hold 82% of the right tools of the corpus among 12,600; 100 hold 75%
_FIELDS = ("name", "about", "params")
_TINY = 1e-6
# A request in English is a third function words; fewer than this share, and it is in another
# language or is no sentence, and the encoder knows little of it.
_FUNCTION_SHARE = 0.15
_TOKEN = re.compile(r"\w+")


@dataclass(frozen=True)
class Candidates:
    """Places of the candidates and their features, each [candidates]; `rough` orders the pool."""

    places: np.ndarray
    features: dict[str, np.ndarray]
    rough: np.ndarray  # float32 [tools]
    coverage: np.ndarray  # share of the question's word weight that each candidate could have


FOREIGN = "foreign "  # before the name of a feature of a query in another language than English


def choose_candidates(
    signals: Signals, mask: np.ndarray | None, most: int = CANDIDATES
) -> Candidates:
    """The `most` best tools at first sight, in the order of their places, with their features."""
    index, glimpse = signals.index, signals.glimpse
    mean, spread = signals.standing(FULL)
    standing = {name: signals.standing(name) for name in SERVER_VIEWS}
    seen = [(glimpse[name] - np.float32(m)) / np.float32(s) for name, (m, s) in standing.items()]
    server = _scale_values(signals.server_words)
    words = signals.joint_words
    best = max(float(words.max(initial=0.0)), _TINY)
    above = np.float32(0.7) * np.maximum(*seen) + server - np.float32(mean / spread)
    rough = glimpse[FULL] / np.float32(spread)
    rough += above[index.server_of]
    rough += words * np.float32(4 / best)
    places = _choose_best(rough, mask, most)
    owners = index.server_of[places]
    own = (signals.exact(FULL, places) - mean) / spread
    features = {FULL: own, "server words": server[owners]}
    for name, (middle, wide) in standing.items():
        features[name] = (signals.exact(name, owners) - middle) / wide
    for name in TOOL_VIEWS[1:]:
        features[name] = (signals.view(name, places) - mean) / spread
    features["joint words"] = words[places] / best
    for name in _FIELDS:
        features[f"{name} words"] = _scale_values(signals.field(name))[places]
    features |= _score_requests(signals, places, own, (mean, spread))
    features["crowd"] = np.log(np.bincount(owners)[owners]).astype(np.float32)
    foreign = np.float32(measure_foreignness(signals.tool_text))
    if (
        foreign
    ):  # the encoder reads English: in another language each signal has a weight of its own
        features |= {f"{FOREIGN}{name}": values * foreign for name, values in features.items()}
    coverage = words[places] / max(signals.joint_most, _TINY)
    return Candidates(places, features, rough, coverage)


def weigh_evidence(found: Candidates, scores: np.ndarray) -> dict[str, float]:
    """What speaks for the pool holding a suitable tool, from candidates and their fused scores."""
    if not len(scores):
        return {}
    order = np.argsort(-scores)
    top, best = order[0], float(scores[order[0]])
    tail = scores[order[1:]]
    near = float(scores[order[min(10, len(order) - 1)]])
    return {
        "full": float(found.features[FULL].max()),
        "full of best": float(found.features[FULL][top]),
        "server": float(max(found.features[name].max() for name in SERVER_VIEWS)),
        "coverage": float(found.coverage.max()),
        "coverage of best": float(found.coverage[top]),
        "params of best": float(found.features["params words"][top]),
        "server words of best": float(found.features["server words"][top]),
        "lead": best - float(tail[0]) if len(tail) else 0.0,
        "lead of ten": best - near,
    }


def measure_foreignness(text: str) -> float:
    """0 for English sentences, up to 1 for text without any English function word."""
    tokens = _TOKEN.findall(text.lower())
    share = sum(token in FUNCTION_WORDS for token in tokens) / max(len(tokens), 1)
    return max(0.0, 1 - share / _FUNCTION_SHARE)


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
        out[at] = (cosine - mean) / spread
    return {ASKED: np.where(end > start, np.maximum(out - own, 0.0), 0.0).astype(np.float32)}


def _choose_best(scores: np.ndarray, mask: np.ndarray | None, most: int) -> np.ndarray:
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if most >= len(scores):
        return np.flatnonzero(np.isfinite(scores))
    near = np.sort(np.argpartition(-scores, most - 1)[:most])
    return near if mask is None else near[np.isfinite(scores[near])]


def _scale_values(values: np.ndarray) -> np.ndarray:
    return values / max(float(values.max(initial=0.0)), _TINY)
