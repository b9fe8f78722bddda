"""The decision to retrain is a pure function of drift."""

from hypothesis import given
from hypothesis import strategies as st

from training.drift.decide import DriftState, RetrainPolicy, compute_drift, decide_retraining

MAPS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("123"), max_size=8)


def state(**changes: object) -> DriftState:
    facts = {
        "changed": 5, "known": 100, "ever_trained": True,
        "training_set": "new", "trained_on": "old", "train_rows": 500,
    }  # fmt: skip
    return DriftState(**{**facts, **changes})  # type: ignore[arg-type]


def test_drift_beyond_the_share_retrains_and_says_why() -> None:
    made = decide_retraining(state())
    assert made.retrain
    assert "5 changed, 0 new, 0 gone of 100 contracts (5.0%)" in made.reasons[0]


def test_small_drift_does_not() -> None:
    assert not decide_retraining(state(changed=0, new=1), RetrainPolicy(min_share=0.05)).retrain


def test_the_first_training_needs_no_drift() -> None:
    first = state(ever_trained=False, trained_on=None, changed=0, known=0)
    assert decide_retraining(first).reasons == ["nothing was trained yet"]


def test_a_set_that_was_trained_on_is_not_trained_on_again() -> None:
    assert not decide_retraining(state(trained_on="new", changed=90)).retrain


def test_nothing_is_trained_on_too_little() -> None:
    assert not decide_retraining(state(train_rows=3)).retrain
    assert not decide_retraining(state(training_set=None)).retrain


def test_repeated_failure_stops_the_attempts() -> None:
    assert decide_retraining(state(failed_attempts=2)).retrain
    assert not decide_retraining(state(failed_attempts=3)).retrain


@given(MAPS, MAPS)
def test_drift_counts_every_tool_once(then: dict[str, str], now: dict[str, str]) -> None:
    found = compute_drift(then, now)
    same = sum(then[key] == now[key] for key in then.keys() & now.keys())
    union = len(then.keys() | now.keys())
    assert found.changed + found.new + found.gone + same == union
    assert found.ever_trained


@given(MAPS)
def test_the_same_contracts_has_no_drift(contracts: dict[str, str]) -> None:
    assert compute_drift(contracts, dict(contracts)).share == 0.0


def test_before_the_first_training_everything_is_new() -> None:
    found = compute_drift(None, {"a": "1", "b": "2"})
    assert (found.new, found.ever_trained, found.share) == (2, False, 1.0)
