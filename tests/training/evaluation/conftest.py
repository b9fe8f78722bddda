"""A training set over the small world, and predictors that follow a script."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.training.conftest import embed, make_world
from training.evaluation.items import Item, TestPlan, make_items
from training.evaluation.predictors import Answered, Asked, OnDone, PredictorKind, answered
from training.set_policy import SetPolicy
from training.training_set import TrainingSet, build_training_set

PLAN = TestPlan(candidates=(6, 12), per_split=10, per_large=4, perturbations=6, irrelevance=5,
                phantom=5)  # fmt: skip
Say = Callable[[Asked], Answered]


class Scripted:
    """Says what `say` says of each question."""

    kind: PredictorKind = "baseline"

    def __init__(self, label: str, say: Say) -> None:
        self.label, self._say = label, say

    def predict(self, asked: Sequence[Asked], on_done: OnDone | None = None) -> list[Answered]:
        return [self._say(one) for one in asked]


def texts(say: Callable[[Asked], str]) -> Say:
    return lambda asked: answered(say(asked))


@pytest.fixture(scope="session")
def made() -> TrainingSet:
    """The small world's set, with held-out tools and requests, and a row that no tool serves."""
    snapshots, pairs = make_world()
    aside = {
        **pairs[0],
        "pair_id": "p1:aside",
        "task": "no_tool",
        "instruction": "What is the plural of cactus?",
        "arguments": None,
        "calls": "[]",
        "offered": f'["{pairs[0]["contract_digest"]}"]',
    }
    both = [*pairs, aside]
    policy = SetPolicy(unseen_tool_share=0.3, seen_tool_share=0.3, near_cosine=1.0)
    return build_training_set(both, snapshots, embed, policy)


@pytest.fixture(scope="session")
def items(made: TrainingSet) -> list[Item]:
    return make_items(made.rows, made.pool, PLAN)


@pytest.fixture(scope="session")
def right(items: Sequence[Item]) -> dict[str, list[dict[str, Any]]]:
    """Item -> its right calls."""
    return {item.item_id: item.expected for item in items}
