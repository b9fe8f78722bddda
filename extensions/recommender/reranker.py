"""The reranker: P(success) of each candidate, how sure it is, and learning online. A question waits
for no update: parts of the posterior are replaced as wholes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from extensions.recommender.posterior import (
    BlockLevel,
    OddsBelief,
    PosteriorBlock,
    SharedPosterior,
    expect_odds,
    keep_share,
    match_moments,
    move_gaussian,
)
from extensions.recommender.question_features import (
    SHARED_FEATURES,
    FeatureShape,
    RequestSpace,
    RerankQuestion,
    ToolFamilies,
    ToolMemory,
    VectorProjection,
    add_outcome,
    measure_contract_features,
    measure_memory,
)
from extensions.recommender.tool_pool import ToolPool
from serving.index.model import compute_products

SERVER, FAMILY, TOOL, CLIENT = "server", "family", "tool", "client"  # levels of blocks
LEVELS = (SERVER, FAMILY, TOOL, CLIENT)
_REACH = 4.0  # standard deviations beyond which a feature reads as that far
_MEMORY = 0.85  # of how surprising a tool's outcomes were, kept at each further one
_ASTONISHED = 9.0  # square of the deviations at which a tool is held to have changed
_KEPT_ON_CHANGE = 0.5


@dataclass(frozen=True)
class RerankerWeights:
    """Everything that was fitted. `centre`, `scale`: of READ features; `memory`: what each tool
    did; `hardness`: variance of log odds between requests; `embedder`: what made the vectors."""

    shape: FeatureShape
    projection: VectorProjection
    requests: RequestSpace
    families: ToolFamilies
    centre: np.ndarray
    scale: np.ndarray
    shared: SharedPosterior
    levels: dict[str, BlockLevel]
    hardness: float = 0.0
    embedder: str = ""
    memory: dict[str, ToolMemory] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RerankScores:
    """Of each candidate: P(success), its standard deviation, and the log odds behind it."""

    p: np.ndarray
    sd: np.ndarray
    belief: OddsBelief


def count_shared(shape: FeatureShape) -> int:
    return len(SHARED_FEATURES) + shape.query + shape.tool + shape.cross**2


def count_local(shape: FeatureShape, level: str) -> int:
    """How many numbers a block of a level reads, the first of what all read."""
    return 1 + (shape.block if level in (FAMILY, TOOL) else shape.few)


class BayesianReranker:
    """Weights bound to a pool of tools. Safe to share by threads."""

    def __init__(self, weights: RerankerWeights, pool: ToolPool) -> None:
        self._weights, self.pool = _copy_weights(weights), pool
        self.released = weights  # what it began with
        self._lock = Lock()
        self._tools = weights.projection.project_tools(pool.vectors).astype(np.float32)
        names = [tool.tool_id for tool in pool.tools]
        self._families = weights.families.list_keys(names, pool.vectors)

    @property
    def weights(self) -> RerankerWeights:
        return _copy_weights(self._weights)

    def adopt(self, weights: RerankerWeights) -> None:
        """Believes these weights, of the same features, from the next question on."""
        with self._lock:
            self._weights = _copy_weights(weights)

    def score(self, question: RerankQuestion, places: np.ndarray | None = None) -> RerankScores:
        """Scores of the tools at `places`, by default of the question's candidates."""
        places = question.candidates if places is None else places
        weights = self._weights
        shared, local = self.measure(question, places, weights)
        keys = self.list_keys(question, places)
        if keys.get(CLIENT) and weights.levels[CLIENT].blocks.keys().isdisjoint(keys[CLIENT]):
            del keys[CLIENT]  # nothing is known of this client: it is like any other
        belief = expect_odds(weights.shared, weights.levels, shared, local, keys)
        p = OddsBelief(belief.mean, belief.variance + weights.hardness).probability
        return RerankScores(p, p * (1 - p) * np.sqrt(belief.variance), belief)

    def predict_success(self, question: RerankQuestion) -> np.ndarray:
        return self.score(question).p

    def measure(
        self, question: RerankQuestion, places: np.ndarray, weights: RerankerWeights | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(features of the shared block [places, dims], what each other block reads [dims]), by
        the weights of now or by others."""
        weights = weights or self._weights
        shape = weights.shape
        names = [self.pool.tools[place].tool_id for place in places.tolist()]
        recalled = measure_memory(weights.memory, names, self.pool.vectors[places], question.vector)
        hand = np.concatenate([measure_contract_features(self.pool, question, places), recalled], 1)
        hand = (hand - weights.centre) / weights.scale
        query = weights.projection.project_query(question.vector)
        query = np.nan_to_num(query, nan=0.0, posinf=0.0, neginf=0.0)
        tools = self._tools[places]
        cross = tools[:, : shape.cross, None] * query[None, None, : shape.cross]
        asked = np.tile(query[: shape.query], (len(places), 1))
        parts = [
            np.clip(np.nan_to_num(hand), -_REACH, _REACH),
            asked,
            tools[:, : shape.tool],
            cross.reshape(len(places), shape.cross**2),
        ]
        local = np.concatenate([[1.0], weights.requests.place_request(question.vector)])
        return np.concatenate(parts, 1, dtype=np.float64), local

    def remember(
        self, question: RerankQuestion, place: int, success: bool, weight: float = 1.0
    ) -> None:
        """Keeps in memory what a tool did, without learning weights from it."""
        name = self.pool.tools[place].tool_id
        add_outcome(self._weights.memory, name, question.vector, success, weight)

    def list_keys(self, question: RerankQuestion, places: np.ndarray) -> dict[str, list[str]]:
        """The block of each place at each level; none at the client's without a client."""
        tools = [self.pool.tools[place] for place in places.tolist()]
        keys = {
            SERVER: [tool.server_id for tool in tools],
            FAMILY: [self._families[place] for place in places.tolist()],
            TOOL: [tool.tool_id for tool in tools],
        }
        if question.client:
            keys[CLIENT] = [f"{question.client}\n{tool.tool_id}" for tool in tools]
        return {name: own for name, own in keys.items() if name in self._weights.levels}

    def update(
        self, question: RerankQuestion, place: int, success: bool, weight: float = 1.0
    ) -> None:
        """Learns from one outcome of the tool at `place`. Raises ValueError for a weight that is
        not 0 to 1."""
        if not 0 <= weight <= 1:
            raise ValueError(f"an outcome's weight is {weight!r}, expected 0 to 1")
        if weight == 0:
            return
        at = np.array([place])
        read, local = self.measure(question, at)
        keys = {name: own[0] for name, own in self.list_keys(question, at).items()}
        with self._lock:
            self._learn(read[0], local, keys, success, weight)
            self.remember(question, place, success, weight)

    def _learn(
        self, read: np.ndarray, local: np.ndarray, keys: Mapping[str, str],
        success: bool, weight: float,
    ) -> None:  # fmt: skip
        held = self._weights
        now = {name: held.levels[name].get_block(key) for name, key in keys.items()}
        mean = float(read @ held.shared.mean)
        own = {name: local[: len(block.mean)] for name, block in now.items()}
        mean += sum(float(block.mean @ own[name]) for name, block in now.items())
        variance = float(compute_products(held.shared.covariance, read) @ read)
        variance += sum(
            float(own[name] @ block.covariance @ own[name]) for name, block in now.items()
        )
        before = mean, max(variance, 1e-9)
        after = match_moments(mean, variance, success, weight)
        expected = float(OddsBelief(np.array([mean]), np.array([before[1]])).probability[0])
        for name, block in now.items():
            moved = move_gaussian(block.mean, block.covariance, own[name], before, after)
            made = replace(block, mean=moved[0], covariance=moved[1], n=block.n + weight)
            if name == TOOL:
                made = _note_surprise(made, held.levels[name], success, expected, weight)
                if not made.surprise_variance:  # changed: what it did before says little
                    held.memory.pop(keys[name], None)
            held.levels[name].blocks[keys[name]] = made
        shared = move_gaussian(held.shared.mean, held.shared.covariance, read, before, after)
        self._weights = replace(held, shared=SharedPosterior(*shared))


def _copy_weights(weights: RerankerWeights) -> RerankerWeights:
    """The weights with tables of blocks of their own; the blocks themselves never change."""
    levels = {name: replace(one, blocks=dict(one.blocks)) for name, one in weights.levels.items()}
    return replace(weights, levels=levels, memory=dict(weights.memory))


def _note_surprise(
    block: PosteriorBlock, level: BlockLevel, success: bool, expected: float, weight: float
) -> PosteriorBlock:
    """The block with this outcome counted; half of it forgotten once its last outcomes go three
    deviations against what was expected: the tool is another than it was."""
    total = _MEMORY * block.surprise + weight * (success - expected)
    variance = _MEMORY**2 * block.surprise_variance + weight**2 * expected * (1 - expected)
    if block.n < 4 or total * total < _ASTONISHED * max(variance, 0.5):
        return replace(block, surprise=total, surprise_variance=variance)
    return replace(keep_share(block, level, _KEPT_ON_CHANGE), surprise=0.0, surprise_variance=0.0)
