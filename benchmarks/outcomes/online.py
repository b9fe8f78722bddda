"""A stream of requests: a method starts cold, orders, and learns from what the actor took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.outcomes.simulator import PICKS, SHOWN, TICK_S, World
from extensions.recommender.reranking.features import Question
from extensions.recommender.training.examples import Example, Method

REFITS = (25, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900)  # outcomes before a new fit


@dataclass
class Stream:
    """What one method met: the expected success at each request (by what the actor would take), how
    often each tool was shown, and all outcomes."""

    expected: list[float] = field(default_factory=list)
    shown: list[tuple[int, ...]] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


def run_stream(
    worlds: Sequence[tuple[int, World]],
    make: Callable[[], Method],
    seed: int,
    *,
    refits: Sequence[int] = REFITS,
) -> Stream:
    """worlds: (how many requests, the world that they are played in), one after the other over one
    pool; a later world is the earlier one after it changed."""
    rng = np.random.default_rng(seed)
    method, stream, due = make(), Stream(), sorted(refits, reverse=True)
    method.fit([], worlds[0][1].stage.pool)
    rows = rng.permutation(len(worlds[0][1].questions))
    start = 0
    for count, world in worlds:
        for at in range(start, start + count):
            row = int(rows[at % len(rows)])
            question = at_time(world.questions[row], at)
            shown = order_shown(method, question, rng)
            stream.shown.append(tuple(shown.tolist()))
            stream.expected.append(float(world.chance[row, shown] @ PICKS[: len(shown)]))
            place = int(rng.choice(shown, p=PICKS[: len(shown)] / PICKS[: len(shown)].sum()))
            success = world.judge(row, place, rng)
            example = Example(question, place, success, task=f"task-{row}")
            stream.examples.append(example)
            method.update(example)
            if due and len(stream.examples) >= due[-1]:
                due.pop()
                method.fit(stream.examples, world.stage.pool)
        start += count
    return stream


def order_shown(method: Method, question: Question, rng: np.random.Generator) -> np.ndarray:
    """The places of the five that the actor is shown."""
    scores = method.explore(question, question.candidates, rng)
    return question.candidates[np.argsort(-scores, kind="stable")[:SHOWN]]


def at_time(question: Question, at: int) -> Question:
    """The question as asked at the `at`-th request."""
    return replace(question, at=at * TICK_S)


def tell_oracle(world: World) -> np.ndarray:
    """Expected success at each request of who knows the true chances."""
    return np.array(
        [
            np.sort(world.chance[row, question.candidates])[::-1][:SHOWN] @ PICKS
            for row, question in enumerate(world.questions)
        ]
    )


def tell_retriever(world: World) -> np.ndarray:
    """Expected success at each request of the retriever's own order."""
    return np.array(
        [
            world.chance[row, question.candidates[:SHOWN]] @ PICKS
            for row, question in enumerate(world.questions)
        ]
    )
