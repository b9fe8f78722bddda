"""Off-policy estimates against answers that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.recommender.policy_value.estimators import (
    Estimate,
    Logged,
    estimate_doubly_robust,
    estimate_ips,
    estimate_self_normalised,
)

WORTH = np.array([0.3, 0.8, 0.5])  # of three actions
WANTED = np.array([0.1, 0.7, 0.2])
TRUE = float(WANTED @ WORTH)
DRAWN = np.array([0.8, 0.1, 0.1])


def draw_log(seed: int, n: int = 600) -> tuple[Logged, np.ndarray]:
    """(n drawn rows, the action of each)."""
    dice = np.random.default_rng(seed)
    actions = dice.choice(3, n, p=DRAWN)
    rewards = (dice.random(n) < WORTH[actions]).astype(float)
    groups = [str(at) for at in range(n)]
    return Logged(rewards, DRAWN[actions], WANTED[actions], groups), actions


def estimate_all(seed: int) -> dict[str, Estimate]:
    logged, actions = draw_log(seed)
    wrong = np.array([0.9, 0.1, 0.9])  # a model that has it all wrong: the propensities are right
    found = {
        "ips": estimate_ips(logged),
        "self-normalised": estimate_self_normalised(logged),
        "doubly robust": estimate_doubly_robust(
            logged, WORTH[actions], np.full(len(actions), TRUE)
        ),
        "wrong model": estimate_doubly_robust(
            logged, wrong[actions], np.full(len(actions), float(WANTED @ wrong))
        ),
    }
    return {name: one for name, one in found.items() if one is not None}


def test_every_estimator_is_right_on_average_and_its_interval_holds_the_truth() -> None:
    runs = [estimate_all(seed) for seed in range(200)]
    for name in runs[0]:
        values = np.array([run[name].value for run in runs])
        held = np.mean([run[name].low <= TRUE <= run[name].high for run in runs])
        assert values.mean() == pytest.approx(TRUE, abs=0.02), name
        assert 0.89 <= held <= 0.99, name
    spread = {name: np.std([run[name].value for run in runs]) for name in runs[0]}
    assert spread["doubly robust"] < spread["ips"]


def test_a_right_model_makes_up_for_wrong_propensities() -> None:
    logged, actions = draw_log(1, 4000)
    wrong = Logged(logged.rewards, np.full(4000, 0.5), logged.wanted, logged.groups)
    ips = estimate_ips(wrong)
    robust = estimate_doubly_robust(wrong, WORTH[actions], np.full(4000, TRUE))
    assert ips is not None
    assert robust is not None
    assert abs(ips.value - TRUE) > 0.1
    assert robust.low <= TRUE <= robust.high


rewards = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30)


@given(rewards)
def test_a_policy_that_draws_as_the_log_did_has_the_mean_of_the_log(given_: list[float]) -> None:
    n = len(given_)
    logged = Logged(np.array(given_), np.full(n, 0.2), np.full(n, 0.2), [*map(str, range(n))])
    for found in (estimate_ips(logged), estimate_self_normalised(logged)):
        assert found is not None
        assert found.value == pytest.approx(np.mean(given_))
        assert found.low < found.high  # also where every reward is alike
        assert found.low <= found.value <= found.high
        assert found.effective_n == pytest.approx(n)


@given(st.integers(0, 500))
def test_rows_said_over_and_over_in_one_group_make_an_interval_no_narrower(seed: int) -> None:
    once, _ = draw_log(seed, 30)
    again = Logged(
        *(np.tile(part, 5) for part in (once.rewards, once.propensities, once.wanted)),
        [*once.groups] * 5,
    )
    first, second = estimate_ips(once), estimate_ips(again)
    assert first is not None
    assert second is not None
    assert (second.low, second.high) == pytest.approx((first.low, first.high), abs=0.2)
    assert second.value == pytest.approx(first.value)


def test_without_overlap_there_is_no_estimate() -> None:
    logged = Logged(np.ones(3), np.full(3, 0.5), np.zeros(3), ["a", "b", "c"])
    assert estimate_ips(logged) is None
    assert estimate_self_normalised(logged) is None
    empty = Logged(np.ones(0), np.ones(0), np.ones(0), [])
    assert estimate_ips(empty) is None
