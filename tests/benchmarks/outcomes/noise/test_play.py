import numpy as np
import pytest

from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.play import (
    draw_log,
    order_by_oracle,
    order_by_retriever,
    order_curated,
    value_orders,
)
from benchmarks.outcomes.noise.table import NO_CALL, TableCall
from tests.benchmarks.outcomes.noise.stages import make_stage

STAGE = make_stage()
HELD = STAGE.list_tasks(HELD_OUT)


@pytest.mark.parametrize(("actor", "expected"), [("top", 0.0), ("by rank", 0.18 / (0.55 + 0.18))])
def test_the_actor_takes_the_first_or_overrides_by_rank(actor: str, expected: float) -> None:
    orders = order_by_retriever(STAGE, HELD)
    assert value_orders(STAGE, HELD, orders, actor) == pytest.approx([expected] * 2)


def test_the_oracle_knows_the_true_rates_of_a_phase() -> None:
    before = order_by_oracle(STAGE, HELD)
    assert value_orders(STAGE, HELD, before, "top").tolist() == [1, 1]
    after = order_by_oracle(STAGE, HELD, AFTER)
    assert [order[0] for order in after] == [2, 2]  # the newcomer


def test_the_curated_pool_holds_real_endpoints_only() -> None:
    assert [order.tolist() for order in order_curated(STAGE, HELD)] == [[0], [0]]


def test_newcomers_are_candidates_in_the_second_phase_only() -> None:
    assert STAGE.ask(HELD[0], BEFORE).candidates.tolist() == [0, 1]
    assert STAGE.ask(HELD[0], AFTER).candidates.tolist() == [0, 1, 2]


def test_a_log_has_one_outcome_a_task_and_is_a_function_of_its_seed() -> None:
    train = STAGE.list_tasks(TRAIN)
    log = draw_log(STAGE, train, 1)
    assert [one.task for one in log] == [one.id for one in train]
    assert [one.place for one in log] == [one.place for one in draw_log(STAGE, train, 1)]
    assert all(one.success == (one.place == 1) for one in log)
    times = [one.question.at for one in log]
    assert times == sorted(times)
    assert np.unique(times).size == len(log)


def test_an_actor_passes_over_tools_that_it_cannot_call_unless_all_are_such() -> None:
    stage = make_stage()
    first, second, _ = stage.table.endpoints
    stage.table.outcomes[HELD[0].id, first, BEFORE] = TableCall(False, NO_CALL)
    assert stage.ask(HELD[0], BEFORE).candidates.tolist() == [1]
    stage.table.outcomes[HELD[0].id, second, BEFORE] = TableCall(False, NO_CALL)
    assert stage.ask(HELD[0], BEFORE).candidates.tolist() == [0, 1]
