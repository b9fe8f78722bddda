from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assets.outcomes.reliability.observation import Observation
from serving.reranking.pool import Pool
from tests.support.reranking import DIM, make_pool
from training.reranker.observed import OLD_CONTRACT, make_observed

TOOLS = make_pool()
POOL = Pool([replace(one, contract_digest="c1:new") for one in TOOLS.tools], TOOLS.vectors)
SEEN = Observation(
    at=20.0, tool_id="npm:s1::tool_1", contract_digest="c1:new", success=True, query="do job 1"
)


class OneDirection:
    id, dim = "test/8", DIM

    def embed(self, texts: Sequence[str], *, on_done: Any = None) -> np.ndarray:
        return np.repeat(np.eye(1, DIM, dtype=np.float32), len(texts), 0)


def test_observations_are_examples_in_the_order_of_time() -> None:
    earlier = replace(SEEN, at=10.0, success=False, search_id="s1", client="alice")
    first, second = make_observed([SEEN, earlier], POOL, OneDirection()).examples
    assert (first.success, first.question.at, first.question.client) == (False, 10.0, "alice")
    assert (first.task, second.task) == ("s1", "do job 1")
    assert second.place == POOL.places["npm:s1::tool_1"]
    assert (np.diff((POOL.vectors @ np.eye(1, DIM)[0])[first.question.candidates]) <= 0).all()


def test_what_another_contract_did_counts_for_less() -> None:
    old = replace(SEEN, contract_digest="c1:old", weight=0.5)
    [example] = make_observed([old], POOL, OneDirection()).examples
    assert example.weight == 0.5 * OLD_CONTRACT


def test_what_teaches_nothing_is_counted() -> None:
    rows = [
        replace(SEEN, query=" "), replace(SEEN, tool_id="npm:gone::x"), replace(SEEN, weight=0.0),
        replace(SEEN, weight=float("nan")), replace(SEEN, at=float("inf")), SEEN,
    ]  # fmt: skip
    found = make_observed(rows, POOL, OneDirection())
    assert len(found.examples) == 1
    assert found.left_out == {"words not kept": 1, "unknown tool": 1, "no weight": 3}
    assert make_observed([], POOL, OneDirection()).examples == []
