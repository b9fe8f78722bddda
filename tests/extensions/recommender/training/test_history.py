from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool, ToolFacts
from extensions.recommender.training.examples import Example
from extensions.recommender.training.history import _OLD, add_passed_over, add_words, make_examples
from tests.outcomes.reliability.observing import Observation, make_frame
from tests.support.reranking import DIM, make_pool
from warehouse.store import Warehouse

TOOLS = make_pool()
POOL = Pool([replace(tool, contract_digest="c1:new") for tool in TOOLS.tools], TOOLS.vectors)
SEEN = Observation(
    at=20.0, tool_id="npm:s1::tool_1", contract_digest="c1:new", success=True, query="do job 1",
    query_key="q1:1", source="token:ann",
)  # fmt: skip


ORDER = np.arange(len(POOL))[::-1]  # as tools are served, whatever they are alike to


def ask(words: Iterable[str]) -> dict[str, Question]:
    return {text: Question(text, np.eye(1, DIM, dtype=np.float32)[0], ORDER) for text in words}


def test_calls_are_examples_in_the_order_of_time() -> None:
    earlier = replace(SEEN, at=10.0, success=False, client="alice")
    first, second = make_examples(make_frame([SEEN, earlier]), POOL, ask)
    assert (first.success, first.question.at) == (False, 10.0)
    assert (first.question.client, second.question.client) == ("token:ann alice", None)
    assert first.task == second.task == "q1:1"
    assert second.place == POOL.places["npm:s1::tool_1"]
    assert first.question.candidates.tolist() == ORDER.tolist()


def test_what_was_passed_over_is_what_is_served_first() -> None:
    tools = [
        ToolFacts(f"npm:s::tool_{at}", "npm:s", {"name": f"tool_{at}"}, f"c1:{at}")
        for at in range(40)
    ]
    pool, served = Pool(tools, np.eye(40, DIM, dtype=np.float32)), np.arange(40)[::-1]
    asked = Question("do job 1", np.eye(1, DIM, dtype=np.float32)[0], served)
    done = Example(asked, 35, True)
    own, *passed = add_passed_over([done], pool)
    assert own is done
    assert len({one.place for one in passed}) == 4
    assert {one.place for one in passed} <= set(range(20, 40)) - {35}
    assert not any(one.success for one in passed)


def test_what_another_contract_did_counts_for_less() -> None:
    old = replace(SEEN, contract_digest="c1:old", weight=0.5)
    [example] = make_examples(make_frame([old]), POOL, ask)
    assert example.weight == 0.5 * _OLD


def test_a_tool_that_is_gone_teaches_nothing() -> None:
    gone = replace(SEEN, tool_id="npm:gone::x")
    assert len(make_examples(make_frame([gone, SEEN]), POOL, ask)) == 1
    assert make_examples(make_frame([]), POOL, ask) == []


@pytest.mark.parametrize(
    "changed",
    [{"query": " "}, {"weight": 0.0}, {"weight": float("nan")}, {"at": float("inf")}],
)
def test_a_call_without_words_time_or_weight_is_left_out(
    changed: dict[str, object], tmp_path: Path
) -> None:
    tables = Warehouse(home=tmp_path, state=tmp_path / "state").tables
    rows = make_frame([replace(SEEN, **changed), SEEN])  # type: ignore[arg-type]
    assert add_words(rows, tables)["at"].to_list() == [20.0]
