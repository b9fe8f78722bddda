"""Failures injected into a pool as ToolFlix injects them; the true chance of every call is known.

Each real tool fails at its own rate; a variant does what its origin does, and one of the failures
of MODES on top of it, some of them only at requests of one region. What a request needs may also
be done, less well, by the tools that resemble the right one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.outcomes.simulated_pools import SimulatedStage
from extensions.recommender.rerank_method import OutcomeExample
from serving.ranking.reranking import RerankQuestion

# What is left of the chance of success: (at most requests, at those of the region that it hits).
MODES: dict[str, tuple[float, float]] = {
    "none": (1.0, 1.0),
    "random": (0.65, 0.65),
    "truncated": (0.95, 0.25),
    "stale": (0.4, 0.4),
    "slow": (0.85, 0.7),
    "wrong unit": (1.0, 0.2),
    "silent empty": (0.9, 0.1),
}
SHOWN = 5
# The actor takes the first in 55 of 100, as published; otherwise one of the others, earlier ones
# more often.
PICKS = np.array([0.55, 0.18, 0.12, 0.09, 0.06])
TICK_S = 600.0  # between two requests


@dataclass(frozen=True)
class FailureMix:
    """How failures are spread: the weight of each mode among variants, what real tools succeed at
    (a Beta's parameters), the chance that a look-alike of the right tool serves as well, what any
    other tool serves, and how noisy the retriever is (cosine)."""

    modes: Mapping[str, float]
    reliability: tuple[float, float] = (12.0, 2.0)
    alike: float = 0.8
    other: float = 0.02
    noise: float = 0.04
    candidates: int = 100


TUNED = FailureMix({"random": 1.0, "truncated": 1.0, "stale": 1.0, "none": 0.3})
HELD_OUT = FailureMix(
    {"random": 0.5, "truncated": 0.7, "stale": 0.8, "slow": 1, "wrong unit": 1, "silent empty": 1},
    reliability=(5.0, 1.5),
    alike=0.6,
    noise=0.05,
)


# Where any tool may do: what is learnt is which of them fail (the order of magnitude published).
EASY = FailureMix({"random": 1.0, "truncated": 1.0, "stale": 1.0}, other=0.6)


@dataclass(frozen=True)
class SimulatedWorld:
    """`chance` [requests, tools]: the true P(success); `questions`: the requests with their
    candidates, a retriever's order."""

    stage: SimulatedStage
    chance: np.ndarray
    questions: tuple[RerankQuestion, ...]
    modes: tuple[str, ...]

    def judge(self, row: int, place: int, rng: np.random.Generator) -> bool:
        """Whether this call of a tool succeeds."""
        return bool(rng.random() < self.chance[row, place])


def make_world(stage: SimulatedStage, mix: FailureMix, seed: int) -> SimulatedWorld:
    """A world of one stage; a function of its arguments."""
    rng = np.random.default_rng(seed)
    modes = _draw_modes(stage, mix, rng)
    chance = _relate(stage, mix, rng) * _survive(stage, modes, rng)
    own = np.empty(stage.real)
    own[:] = rng.beta(*mix.reliability, stage.real)
    chance = chance * own[stage.origin][None, :]
    hard = rng.beta(12, 1, len(stage.requests.texts))
    questions = _retrieve(stage, mix, rng)
    return SimulatedWorld(stage, (chance * hard[:, None]).clip(0, 0.99), questions, modes)


def drift_world(world: SimulatedWorld, share: float, seed: int) -> SimulatedWorld:
    """The world after `share` of its tools changed: what was good fails, what failed is good."""
    rng = np.random.default_rng(seed)
    count = len(world.stage.pool)
    changed = rng.permutation(count)[: int(share * count)]
    chance = world.chance.copy()
    best = chance.max(1, keepdims=True)
    ratio = chance[:, changed] / np.maximum(best, 1e-6)
    related = ratio > 0.15
    chance[:, changed] = np.where(related, best * np.clip(1.1 - ratio, 0.05, 1.0), ratio * best)
    return replace(world, chance=chance)


def _draw_modes(
    stage: SimulatedStage, mix: FailureMix, rng: np.random.Generator
) -> tuple[str, ...]:
    names = list(mix.modes)
    weights = np.array([mix.modes[name] for name in names], float)
    drawn = rng.choice(len(names), len(stage.pool), p=weights / weights.sum())
    return tuple("none" if at < stage.real else names[mode] for at, mode in enumerate(drawn))


def _relate(stage: SimulatedStage, mix: FailureMix, rng: np.random.Generator) -> np.ndarray:
    """How well each tool's function serves each request, [requests, tools]."""
    base = stage.pool.vectors[: stage.real]
    near = base @ base.T
    np.fill_diagonal(near, -1)
    serves = np.full((stage.real, stage.real), mix.other)
    for row in range(stage.real):
        for other in np.argsort(-near[row])[:4]:
            if rng.random() < mix.alike:
                serves[row, other] = rng.uniform(max(0.4, mix.other), 1.0)
    np.fill_diagonal(serves, 1.0)
    return serves[stage.requests.gold][:, stage.origin]


def _survive(stage: SimulatedStage, modes: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    """What each tool's failure leaves, [requests, tools]; its region is half of a direction."""
    vectors = stage.requests.vectors
    middle = vectors - vectors.mean(0)
    regions = {mode: middle @ rng.normal(size=vectors.shape[1]) for mode in MODES}
    out = np.empty((len(vectors), len(modes)))
    for at, mode in enumerate(modes):
        usual, hit = MODES[mode]
        noise = rng.normal(size=len(vectors)) * regions[mode].std() * 0.5
        out[:, at] = np.where(regions[mode] + noise > 0, hit, usual)
    return out


def _retrieve(
    stage: SimulatedStage, mix: FailureMix, rng: np.random.Generator
) -> tuple[RerankQuestion, ...]:
    cosines = stage.requests.vectors @ stage.pool.vectors.T
    cosines = cosines + rng.normal(size=cosines.shape) * mix.noise
    order = np.argsort(-cosines, axis=1)[:, : mix.candidates]
    return tuple(
        RerankQuestion(text, vector, found, at=row * TICK_S)
        for row, (text, vector, found) in enumerate(
            zip(stage.requests.texts, stage.requests.vectors, order, strict=True)
        )
    )


def draw_judged(world: SimulatedWorld, seed: int, tasks: int, tried: int) -> list[OutcomeExample]:
    """Judged calls as a log would hold them: of each of `tasks` requests up to `tried` different
    tools out of the retriever's first ten were called."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(world.questions))[:tasks]
    results = []
    for row in rows.tolist():
        question = world.questions[row]
        first = question.candidates[:8]
        weights = 0.9 ** np.arange(len(first))
        for place in rng.choice(
            first, min(tried, len(first)), replace=False, p=weights / weights.sum()
        ):
            success = world.judge(row, int(place), rng)
            results.append(OutcomeExample(question, int(place), success, task=f"task-{row}"))
    return results
