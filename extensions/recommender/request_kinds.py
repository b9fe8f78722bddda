"""Kinds of requests and of tools: in which directions requests differ for tools, and which tools
say so much the same that what one does tells of the other."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.tool_pool import ToolPool
from serving.index.model import compute_products

FAMILY = 0.7  # cosine from which on two tools are of one family
_ROWS = 1_024  # tools that are compared at a time
_LEAST = 1e-9


@dataclass(frozen=True)
class RequestSpace:
    """Requests about their mean in the directions that tell what one tool did from what others did;
    `basis` is float32 [dim, dims], the first directions those that requests differ most in."""

    mean: np.ndarray
    basis: np.ndarray

    def place_request(self, vector: np.ndarray) -> np.ndarray:
        """A unit vector, float64 [dims]; 0 where the request is in none of the directions."""
        found = compute_products(self.basis.T, vector - self.mean).astype(np.float64)
        found = np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)
        length = float(np.linalg.norm(found))
        return found / length if length > _LEAST else found


@dataclass(frozen=True)
class ToolFamilies:
    """The tool that each family is called by, and its vector, float32 [families, dim]."""

    names: tuple[str, ...]
    vectors: np.ndarray

    def list_keys(self, tool_ids: Sequence[str], vectors: np.ndarray) -> list[str]:
        """The family of each tool: that of the nearest in `names`, or one of its own."""
        if not self.names:
            return list(tool_ids)
        keys = []
        for start in range(0, len(tool_ids), _ROWS):
            near = vectors[start : start + _ROWS] @ self.vectors.T
            best = np.argmax(near, 1)
            own = tool_ids[start : start + _ROWS]
            keys += [
                self.names[at] if near[row, at] >= FAMILY else name
                for row, (name, at) in enumerate(zip(own, best.tolist(), strict=True))
            ]
        return keys


_EVEN = 50.0  # outcomes' worth of belief that requests of one tool spread alike in all directions
_FLOOR = 0.1  # of the mean variance, added to each direction's
_TOOLS = 200.0  # requests that the descriptions of all tools together count as
_MOST = 4_000  # tools with the most outcomes that families are made of


def fit_request_space(
    examples: Sequence[OutcomeExample], pool: ToolPool, dims: int
) -> RequestSpace:
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


def choose_families(examples: Sequence[OutcomeExample], pool: ToolPool) -> ToolFamilies:
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
    return ToolFamilies(tuple(names), held[: len(names)].copy())


def _normalise_within(vectors: np.ndarray, examples: Sequence[OutcomeExample]) -> np.ndarray:
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
