"""Learns kinds of requests and of tools from a log: what `reranking/kinds.py` reads.

Requests that one tool did differ in their arguments, not in what is asked for. So directions in
which they spread are shortened (within-class covariance normalisation, Hatch et al. 2006, with the
tool that did a request as its class), and the leading ones of what remains are kept.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from extensions.recommender.reranking.kinds import FAMILY, Families, RequestSpace
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example

_EVEN = 50.0  # outcomes' worth of belief that requests of one tool spread alike in all directions
_FLOOR = 0.1  # of the mean variance, added to each direction's
_TOOLS = 200.0  # requests that the descriptions of all tools together count as
_MOST = 4_000  # tools with the most outcomes that families are made of


def fit_request_space(examples: Sequence[Example], pool: Pool, dims: int) -> RequestSpace:
    """The space that these outcomes' requests are best told apart in by what does them; without
    any, the directions that tools differ in."""
    vectors = np.array([example.question.vector for example in examples], float)
    vectors = vectors.reshape(len(examples), pool.vectors.shape[1])
    tools = pool.vectors.astype(float)
    tools = tools - tools.mean(0) if len(tools) else tools
    mean = vectors.mean(0) if len(vectors) else pool.vectors.astype(float).mean(0)
    scaled = _normalise_within(vectors, examples)
    asked = _shorten(np.unique(vectors, axis=0) - mean, scaled)
    described = _shorten(tools, scaled)
    spread = asked.T @ asked + described.T @ described * (_TOOLS / max(len(tools), 1))
    _, directions = np.linalg.eigh(spread)
    kept = scaled @ directions[:, ::-1][:, :dims]
    basis = np.zeros((vectors.shape[1], dims), np.float32)
    basis[:, : kept.shape[1]] = kept
    return RequestSpace(mean.astype(np.float32), basis)


def choose_families(examples: Sequence[Example], pool: Pool) -> Families:
    """Tools with outcomes, those with the most first; one that is near an earlier one is of its
    family."""
    count = Counter(example.place for example in examples)
    places = sorted(count, key=lambda place: (-count[place], place))[:_MOST]
    held = np.zeros((len(places), pool.vectors.shape[1]), np.float32)
    names: list[str] = []
    for place in places:
        vector = pool.vectors[place]
        if not names or float((held[: len(names)] @ vector).max()) < FAMILY:
            held[len(names)] = vector
            names.append(pool.tools[place].tool_id)
    return Families(tuple(names), held[: len(names)].copy())


def _normalise_within(vectors: np.ndarray, examples: Sequence[Example]) -> np.ndarray:
    """[dim, dim]: what makes requests that one tool did spread alike in all directions."""
    dim = vectors.shape[1]
    done: dict[int, list[int]] = defaultdict(list)
    for row, one in enumerate(examples):
        if one.success:
            done[one.place].append(row)
    within, count = np.zeros((dim, dim)), 0
    for rows in done.values():
        own = vectors[rows] - vectors[rows].mean(0)
        within += own.T @ own
        count += len(rows) - 1
    total = float(np.square(vectors - vectors.mean(0)).mean()) if len(vectors) else 1.0
    total = max(total, 1e-9)
    within = (within + _EVEN * total * np.eye(dim)) / (count + _EVEN)
    spread, axes = np.linalg.eigh(within)
    spread = np.maximum(spread, 0) + _FLOOR * spread.mean()
    return (axes / np.sqrt(spread)) @ axes.T


def _shorten(rows: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """Unit rows after the change of scale."""
    found = rows @ scaled
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
