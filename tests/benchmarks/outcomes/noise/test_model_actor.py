from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.outcomes.noise.intents import HELD_OUT
from benchmarks.outcomes.noise.model_actor import value_by_model
from benchmarks.outcomes.noise.play import order_by_retriever
from tests.benchmarks.outcomes.noise.stages import make_stage
from warehouse.llm.client import LLMError


class Picks:
    """Answers the number of a tool, or an error of a kind."""

    def __init__(self, answer: int | str) -> None:
        self.answer, self.asked = answer, list[Any]()

    async def complete(self, role: str, messages: Any, **more: Any) -> Any:
        self.asked.append((role, more["meta"]["instruction"]))
        if isinstance(self.answer, str):
            raise LLMError(self.answer, "found", "expected", "fix")
        return SimpleNamespace(value=SimpleNamespace(tool=self.answer))


def value(llm: Any) -> list[float]:
    stage = make_stage()
    held = stage.list_tasks(HELD_OUT)
    return value_by_model(stage, held, order_by_retriever(stage, held), llm).tolist()


@pytest.mark.parametrize(
    ("answer", "expected"), [(1, 0.0), (2, 1.0), (0, 0.0), (9, 0.0), ("bad_answer", 0.0)]
)
def test_the_tool_that_the_model_picks_counts_and_no_tool_is_a_failure(
    answer: int | str, expected: float
) -> None:
    llm = Picks(answer)
    assert value(llm) == [expected, expected]
    assert sorted(llm.asked) == [("checker_a", "read 6"), ("checker_a", "read 7")]


def test_a_role_that_nobody_answers_is_an_error() -> None:
    with pytest.raises(LLMError):
        value(Picks("no_provider"))
