"""."""

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
from benchmarks.outcomes.noise.report import (
    OLD_CONTRACT,
    DriftResult,
    age_examples,
    count_recovery,
    describe_table,
    measure_drift,
    render_report,
    run_drift,
    summarise_categories,
    summarise_drift,
    summarise_values,
    value_fixed,
    value_methods,
)
from benchmarks.outcomes.noise.table import NO_CALL, TableCall, load_table
from extensions.recommender.methods import SuccessPrior
from tests.benchmarks.outcomes.noise.stages import make_stage
from tests.support.cases import cases

STAGE, METHODS = make_stage(), {"toolflix": SuccessPrior}  # what stands in for the rival here


def test_the_report_tells_each_method_beside_what_learns_nothing():
    values = value_fixed(STAGE) | value_methods(STAGE, METHODS, 6, (0, 1))
    success = summarise_values(STAGE, values)
    assert success["oracle"]["top"]["success"]["value"] == 1
    assert success["retriever"]["top"]["less toolflix"]["n"] == 2
    assert "less toolflix" not in success["toolflix"]["top"]
    figures = {
        "log": {"success": success},
        "categories": summarise_categories(STAGE, values),
        "drift": measure_drift(STAGE, METHODS, (0,), 3),
    }
    text = render_report(figures)
    assert "| log | top | less toolflix | by rank |" in text
    assert "| oracle | 1.000 [1.000, 1.000] |" in text
    assert "recovered after" in text


def test_a_table_is_described_by_its_counts():
    found = describe_table(STAGE)
    assert found["tasks"] == {"train": 6, "held-out": 2}
    assert (found["real"], found["variants"], found["newcomers"]) == (1, 1, 1)
    assert found["any of five"] == 1
    assert found["success by fault"]["real"] == {"share": 0.0, "n": 8}


def test_what_a_change_cost_is_told_beside_the_oracle_and_over_seeds():
    def play(after: float) -> DriftResult:
        return DriftResult(0.5, {0: 0.2, 50: after})

    found = summarise_drift([play(0.5), play(0.4), play(0.5)], {BEFORE: 0.9, AFTER: 0.8})
    assert (found["seeds"], found["before"]) == (3, 0.5)
    assert found["after"] == {0: 0.2, 50: round(1.4 / 3, 4)}
    # The oracle has lost .1 too: of .3 that went, .2 is the change's.
    assert found["cost"][0]["value"] == pytest.approx(0.2)
    assert found["cost"][50]["value"] == pytest.approx(0.8 - 1.4 / 3 - 0.4, abs=1e-4)
    assert found["outcomes to recover 90%"] == {"value": 50, "interval": [50, 50]}
    slow = summarise_drift([play(0.5), play(0.2), play(0.2)], {BEFORE: 0.9, AFTER: 0.8})
    assert slow["outcomes to recover 90%"] == {"value": None, "interval": [50, None]}


@cases(
    "cost, expected",
    ({0: 0.0, 50: 0.1}, 0),
    ({0: 0.2, 50: 0.1, 100: 0.01, 200: 0.0}, 100),
    ({0: 0.2, 50: -0.1, 100: 0.02}, 50),
    ({0: 0.2, 50: 0.1, 100: 0.03}, None),
)
def test_recovery_is_the_first_check_that_makes_up_for_most_of_what_the_change_cost(cost, expected):
    assert count_recovery(cost) == expected


def test_outcomes_of_a_contract_that_is_gone_weigh_less():
    stage = make_stage()
    log = draw_log(stage, stage.list_tasks(TRAIN), 1)
    weights = {example.place: example.weight for example in age_examples(stage, log)}
    assert weights == {0: 1.0, 1: OLD_CONTRACT}


def test_a_method_learns_after_the_change_that_another_tool_works():
    stage = make_stage()
    train = stage.list_tasks(TRAIN)
    found = run_drift(
        stage, SuccessPrior, draw_log(stage, train, 1), train * 5, stage.list_tasks(HELD_OUT), 1
    )
    assert sorted(found.after) == [0, 25, 30]
    assert found.after[30] >= found.after[0]


STAGE = make_stage()
HELD = STAGE.list_tasks(HELD_OUT)


@cases("actor, expected", ("top", 0.0), ("by rank", 0.18 / (0.55 + 0.18)))
def test_the_actor_takes_the_first_or_overrides_by_rank(actor, expected):
    orders = order_by_retriever(STAGE, HELD)
    assert value_orders(STAGE, HELD, orders, actor) == pytest.approx([expected] * 2)


def test_the_oracle_knows_the_true_rates_of_a_phase():
    before = order_by_oracle(STAGE, HELD)
    assert value_orders(STAGE, HELD, before, "top").tolist() == [1, 1]
    after = order_by_oracle(STAGE, HELD, AFTER)
    assert [order[0] for order in after] == [2, 2]  # the newcomer


def test_the_curated_pool_holds_real_endpoints_only():
    assert [order.tolist() for order in order_curated(STAGE, HELD)] == [[0], [0]]


def test_newcomers_are_candidates_in_the_second_phase_only():
    assert STAGE.ask(HELD[0], BEFORE).candidates.tolist() == [0, 1]
    assert STAGE.ask(HELD[0], AFTER).candidates.tolist() == [0, 1, 2]


def test_a_log_has_one_outcome_a_task_and_is_a_function_of_its_seed():
    train = STAGE.list_tasks(TRAIN)
    log = draw_log(STAGE, train, 1)
    assert [one.task for one in log] == [one.id for one in train]
    assert [one.place for one in log] == [one.place for one in draw_log(STAGE, train, 1)]
    assert all(one.success == (one.place == 1) for one in log)
    times = [one.question.at for one in log]
    assert times == sorted(times)
    assert np.unique(times).size == len(log)


def test_an_actor_passes_over_tools_that_it_cannot_call_unless_all_are_such():
    stage = make_stage()
    first, second, _ = stage.table.endpoints
    stage.table.outcomes[HELD[0].id, first, BEFORE] = TableCall(False, NO_CALL)
    assert stage.ask(HELD[0], BEFORE).candidates.tolist() == [1]
    stage.table.outcomes[HELD[0].id, second, BEFORE] = TableCall(False, NO_CALL)
    assert stage.ask(HELD[0], BEFORE).candidates.tolist() == [0, 1]


def test_a_table_is_what_it_was_saved_as(tmp_path):
    table = make_stage().table
    table.save(tmp_path / "t")
    assert load_table(tmp_path / "t") == table


def test_what_did_not_change_does_in_the_second_phase_what_it_did_in_the_first():
    table = make_stage().table
    first, second, _ = table.endpoints
    assert table.find("t0", first, AFTER) == table.find("t0", first, BEFORE)
    assert table.find("t0", second, AFTER) != table.find("t0", second, BEFORE)
    with pytest.raises(KeyError):
        table.find("t0", "unknown")
