"""The decision to retrain is a pure function of signals, facts, budget and settings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.drift.contract_moves import count_moves, make_contract_signal
from training.drift.decide import (
    RETRIEVER_DECAY,
    Decision,
    DriftSignal,
    LastRun,
    RetrainDecision,
    RetrainPolicy,
    SkipDecision,
    TrainedOn,
    TrainingBudget,
    decide_retraining,
    estimate_gain,
    judge_signals,
)

KNOWN = TrainedOn("new", "old", 500)
NOW = 1_000_000.0
THEN = {f"s::{n}": "1" for n in range(100)}
MOVED = {**THEN, **{f"s::{n}": "2" for n in range(5)}}


def signals(now: dict[str, str] = MOVED, threshold: float = 0.01) -> list[DriftSignal]:
    return judge_signals([make_contract_signal(count_moves(THEN, now), threshold)], 0.05)


def decide(
    drift: list[DriftSignal] | None = None,
    known: TrainedOn = KNOWN,
    last: LastRun | None = None,
    budget: TrainingBudget | None = None,
    policy: RetrainPolicy | None = None,
    new: int = 100,
) -> Decision:
    given_drift = signals() if drift is None else drift
    last, budget = last or LastRun(), budget or TrainingBudget()
    return decide_retraining(given_drift, new, known, last, budget, policy, NOW)


def test_drift_beyond_the_share_retrains_and_says_why() -> None:
    made = decide()
    assert isinstance(made, RetrainDecision)
    assert "5 changed, 0 new, 0 gone of 100 contracts (5.0%)" in made.why[0]


def test_small_drift_does_not() -> None:
    one_new = signals({**THEN, "s::new": "1"}, 0.05)
    made = decide(one_new, policy=RetrainPolicy(min_share=0.05))
    assert isinstance(made, SkipDecision)
    assert made.why[0].endswith("below 5.0%")


def test_the_first_training_needs_no_drift() -> None:
    assert decide([], TrainedOn("new", None, 500)) == RetrainDecision(["nothing was trained yet"])


def test_a_set_that_was_trained_on_is_not_trained_on_again() -> None:
    assert isinstance(decide(known=TrainedOn("new", "new", 500)), SkipDecision)


def test_nothing_is_trained_on_too_little() -> None:
    assert isinstance(decide(known=replace(KNOWN, train_rows=3)), SkipDecision)
    assert isinstance(decide(known=replace(KNOWN, training_set=None)), SkipDecision)


def test_repeated_failure_stops_the_attempts() -> None:
    assert isinstance(decide(last=LastRun(failed_attempts=2)), RetrainDecision)
    assert isinstance(decide(last=LastRun(failed_attempts=3)), SkipDecision)


def test_a_cool_down_holds_drift_back_until_it_ends() -> None:
    policy = RetrainPolicy(cool_down_h=2)
    made = decide(last=LastRun(at=NOW - 7199), policy=policy)
    assert made == SkipDecision(["2 hours between trainings: none before 1970-01-12 13:46 UTC"])
    assert isinstance(decide(last=LastRun(at=NOW - 7200), policy=policy), RetrainDecision)
    changed = replace(KNOWN, settings=("retriever.epochs",))
    assert isinstance(decide(known=changed, last=LastRun(at=NOW), policy=policy), RetrainDecision)


@pytest.mark.parametrize(
    ("hours", "ahead", "made"),
    [
        (
            20,
            3600,
            SkipDecision,
        ),  # trained, then the clock went back an hour: the rest is an hour longer
        (0, 3600, RetrainDecision),  # no cool-down is none, whatever the clock says
        (None, 3600, RetrainDecision),
        (20, 86_400 * 365, RetrainDecision),  # noted by a clock that was a year ahead
    ],
)
def test_a_clock_that_was_set_back_holds_no_training_back_for_long(hours, ahead, made) -> None:
    policy = RetrainPolicy(cool_down_h=hours)
    assert isinstance(decide(last=LastRun(at=NOW + ahead), policy=policy), made)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (RetrainPolicy(gpu_hours_month=4), "took 3.00 GPU hours in 30 days"),
        (RetrainPolicy(usd_month=9, usd_per_gpu_hour=2), "took 6.00 US dollars in 30 days"),
    ],
)
def test_a_training_that_passes_a_budget_is_not_asked_for(policy: RetrainPolicy, said: str) -> None:
    [why] = decide(budget=TrainingBudget(3.0, 2.0), policy=policy).why
    assert said in why
    assert isinstance(decide(budget=TrainingBudget(3.0, 0.5), policy=policy), RetrainDecision)
    assert isinstance(
        decide([], TrainedOn("new", None, 500), budget=TrainingBudget(9, 9), policy=policy),
        SkipDecision,
    )


def test_a_training_that_brings_nothing_is_not_asked_for() -> None:
    assert isinstance(decide(new=0), SkipDecision)
    assert "0 of 500 training pairs are new" in decide(new=0).why[-1]
    assert isinstance(
        decide(last=LastRun(gain=-0.01)), SkipDecision
    )  # the last one harmed, for certain
    assert isinstance(decide(last=LastRun(gain=0.02)), RetrainDecision)


def test_what_the_retriever_lost_for_certain_can_be_won_back() -> None:
    lost = DriftSignal(RETRIEVER_DECAY, 0.1, 200, 0.02, "", p_value=0.001)
    assert estimate_gain(judge_signals([lost], 0.05), 0, 500, LastRun()) == pytest.approx(0.1)
    unsure = replace(lost, p_value=0.3)
    assert estimate_gain(judge_signals([unsure], 0.05), 0, 500, LastRun()) == 0


@given(st.integers(0, 500), st.floats(0, 50), st.floats(-1, 1) | st.none(), st.integers(0, 4))
def test_more_reasons_against_never_make_a_training(new, hours, gain, failed) -> None:
    """A decision to train stands also without each budget, cool-down, failure or minimum gain."""
    last = LastRun(NOW - 3600, gain, failed)
    strict = RetrainPolicy(cool_down_h=hours, gpu_hours_month=10, min_gain=0.01)
    made = decide(new=new, last=last, budget=TrainingBudget(hours, 1), policy=strict)
    if isinstance(made, RetrainDecision):
        free = RetrainPolicy(min_gain=0)
        assert isinstance(decide(new=new, last=LastRun(), policy=free), RetrainDecision)
