import pytest

from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.play import draw_log
from benchmarks.outcomes.noise.streams import (
    OLD_CONTRACT,
    age_examples,
    count_recovery,
    run_drift,
)
from extensions.recommender.methods import SuccessPrior
from tests.benchmarks.outcomes.noise.stages import make_stage


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ({0: 0.0, 50: 0.1}, 0),
        ({0: 0.2, 50: 0.1, 100: 0.01, 200: 0.0}, 100),
        ({0: 0.2, 50: -0.1, 100: 0.02}, 50),
        ({0: 0.2, 50: 0.1, 100: 0.03}, None),
    ],
)
def test_recovery_is_the_first_check_that_makes_up_for_most_of_what_the_change_cost(
    cost: dict[int, float], expected: int | None
) -> None:
    assert count_recovery(cost) == expected


def test_outcomes_of_a_contract_that_is_gone_weigh_less() -> None:
    stage = make_stage()
    log = draw_log(stage, stage.list_tasks(TRAIN), 1)
    weights = {example.place: example.weight for example in age_examples(stage, log)}
    assert weights == {0: 1.0, 1: OLD_CONTRACT}


def test_a_method_learns_after_the_change_that_another_tool_works() -> None:
    stage = make_stage()
    train = stage.list_tasks(TRAIN)
    found = run_drift(
        stage, SuccessPrior, draw_log(stage, train, 1), train * 5, stage.list_tasks(HELD_OUT), 1
    )
    assert sorted(found.after) == [0, 25, 30]
    assert found.after[30] >= found.after[0]
