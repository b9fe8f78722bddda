"""What a reranker reads of a question: features, what tools did and failed at, request kinds."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assets.vectors.lexical import stem_words
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.tool_pool import TOOL_FEATURES, ToolPool
from serving.index.model import compute_products
from serving.ranking.strategies import RerankQuestion

MEMORY_FEATURES = ("like what it did", "like what it failed at", "drawn to what it did", "tried")
_PRIOR = 2.0  # outcomes' worth of nothing in each mean
_STEP = 0.3  # of the way from a tool's own vector to what it did (OATS)


@dataclass(frozen=True)
class ToolMemory:
    """Of one tool: sums of the vectors [dim] of what it did and failed at, and their weights."""

    won: np.ndarray
    lost: np.ndarray
    wins: float
    losses: float


def add_outcome(
    memory: dict[str, ToolMemory], tool_id: str, vector: np.ndarray, success: bool, weight: float
) -> None:
    """Remembers one outcome; what was recalled before is replaced, never written into."""
    old = memory.get(tool_id)
    if old is None:
        old = ToolMemory(np.zeros(len(vector)), np.zeros(len(vector)), 0.0, 0.0)
    weighted = weight * np.nan_to_num(np.asarray(vector, float), posinf=0.0, neginf=0.0)
    if success:
        memory[tool_id] = ToolMemory(old.won + weighted, old.lost, old.wins + weight, old.losses)
    else:
        memory[tool_id] = ToolMemory(old.won, old.lost + weighted, old.wins, old.losses + weight)


def measure_memory(
    memory: Mapping[str, ToolMemory], tool_ids: list[str], vectors: np.ndarray, question: np.ndarray
) -> np.ndarray:
    """MEMORY_FEATURES, [tools, features], 0 for tools never tried. vectors: [tools, dim]."""
    out = np.zeros((len(tool_ids), len(MEMORY_FEATURES)))
    for row, name in enumerate(tool_ids):
        if (held := memory.get(name)) is None:
            continue
        similarity = float(vectors[row] @ question)
        out[row, 0] = float(held.won @ question) / (held.wins + _PRIOR)
        out[row, 1] = float(held.lost @ question) / (held.losses + _PRIOR)
        if held.wins:
            moved = vectors[row] * (1 - _STEP) + held.won / held.wins * _STEP
            length = max(float(np.linalg.norm(moved)), 1e-6)
            out[row, 2] = float(moved @ question) / length - similarity
        out[row, 3] = np.log1p(held.wins + held.losses)
    return out


PAIR_FEATURES = (
    *("cosine", "standing among candidates", "behind the best", "rank by cosine"),
    *("retriever's rank", "words shared", "words of the name asked"),
)
QUERY_FEATURES = ("words asked", "numbers", "address", "path", "quoted", "candidates")
CONTRACT_FEATURES = ("constant", *PAIR_FEATURES, *TOOL_FEATURES, *QUERY_FEATURES)
SHARED_FEATURES = (*CONTRACT_FEATURES, *MEMORY_FEATURES)  # before the directions of vectors
_ADDRESS = re.compile(r"https?://|www\.|@\w")
_PATH = re.compile(r"(?:^|\s)[~./\\]\S*[/\\]|\w\.\w{2,4}\b")
_QUOTED = re.compile(r"[\"'`“«][^\"'`”»]{2,}[\"'`”»]")
_SAME = 1e-5  # cosines that differ by rounding: a product of one row rounds otherwise than of many
_TEXT = 4_000  # characters of a question that are read


@dataclass(frozen=True)
class VectorProjection:
    """Questions and tools about their means, mean square norm 1. `basis`: float32 [dim, dims]."""

    basis: np.ndarray
    query_mean: np.ndarray
    tool_mean: np.ndarray

    def project_query(self, vector: np.ndarray) -> np.ndarray:
        return compute_products(self.basis.T, vector - self.query_mean)

    def project_tools(self, vectors: np.ndarray) -> np.ndarray:
        return (vectors - self.tool_mean) @ self.basis


@dataclass(frozen=True)
class FeatureShape:
    """How many dimensions of the projection each part of the model reads."""

    query: int = 32  # of questions, for how hard they are
    tool: int = 32  # of tools, for how good their like are
    cross: int = 8  # of both, for what their like do well
    block: int = 32  # kinds of request, for what one tool or its family does well
    few: int = 8  # the first of them, for what one server or client does well


def fit_projection(tools: np.ndarray, queries: np.ndarray, dims: int) -> VectorProjection:
    """Directions in which tools and questions vary most; with few vectors, fewer than `dims`."""
    dim = tools.shape[1]
    tool_mean = tools.mean(0) if len(tools) else np.zeros(dim, np.float32)
    query_mean = queries.mean(0) if len(queries) else tool_mean
    both = np.concatenate([tools - tool_mean, queries - query_mean])
    basis = np.zeros((dim, dims), np.float32)
    if len(both):
        _, directions = np.linalg.eigh((both.T @ both).astype(np.float64))
        kept = directions[:, ::-1][:, :dims]
        norm = math.sqrt(max(float(np.square(both @ kept).sum(1).mean()), 1e-12))
        basis[:, : kept.shape[1]] = kept / norm
    return VectorProjection(basis, query_mean.astype(np.float32), tool_mean.astype(np.float32))


def measure_contract_features(
    pool: ToolPool, question: RerankQuestion, places: np.ndarray
) -> np.ndarray:
    """HAND features of the tools at `places`, float32 [places, features], not scaled."""
    if not len(places):
        return np.zeros((0, len(CONTRACT_FEATURES)), np.float32)
    pairs = _measure_pairs(pool, question, places)
    asked = np.tile(_measure_query(question), (len(places), 1))
    one = np.ones((len(places), 1), np.float32)
    return np.concatenate([one, pairs, pool.features[places], asked], 1).astype(np.float32)


def _measure_pairs(pool: ToolPool, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
    candidates = question.candidates if len(question.candidates) else places
    around = compute_products(pool.vectors[candidates], question.vector)
    products = compute_products(pool.vectors[places], question.vector)
    spread = max(float(around.std()), 1e-3)
    order = {int(place): rank for rank, place in enumerate(candidates.tolist())}
    given = np.array([order.get(int(place), len(order)) for place in places], float)
    by_cosine = (around[None, :] > products[:, None] + _SAME).sum(1)
    asked = frozenset(stem_words(question.text[:_TEXT]))
    shared, named, names = pool.words.count_shared(asked, places)
    columns = [
        products,
        (products - around.mean()) / spread,
        products - around.max(initial=-1.0),
        np.log1p(by_cosine),
        np.log1p(given),
        shared / max(len(asked), 1),
        named / np.maximum(names, 1),
    ]
    return np.stack(columns, 1)


def _measure_query(question: RerankQuestion) -> np.ndarray:
    text = question.text[:_TEXT]
    return np.array(
        [
            math.log1p(len(text.split())),
            math.log1p(sum(char.isdigit() for char in text)),
            float(bool(_ADDRESS.search(text))),
            float(bool(_PATH.search(text))),
            float(bool(_QUOTED.search(text))),
            math.log1p(len(question.candidates)),
        ],
        np.float32,
    )


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
        projected = compute_products(self.basis.T, vector - self.mean).astype(np.float64)
        projected = np.nan_to_num(projected, nan=0.0, posinf=0.0, neginf=0.0)
        length = float(np.linalg.norm(projected))
        return projected / length if length > _LEAST else projected


@dataclass(frozen=True)
class ToolFamilies:
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
    """Directions that tell best what does a request; without outcomes, those of tools."""
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
    """Tools with most outcomes first; a tool near an earlier one belongs to its family."""
    count = Counter(example.place for example in examples)
    places = sorted(count, key=lambda place: (-count[place], place))[:_MOST]
    founders = np.zeros((len(places), pool.vectors.shape[1]), np.float32)
    names: list[str] = []
    for place in places:
        vector = pool.vectors[place]
        if not names or float((founders[: len(names)] @ vector).max()) < FAMILY:
            founders[len(names)] = vector
            names.append(pool.tools[place].tool_id)
    return ToolFamilies(tuple(names), founders[: len(names)].copy())


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
    projected = rows @ scaled
    return projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-9)
