import numpy as np

from benchmarks.outcomes.online import run_stream, tell_oracle, tell_retriever
from benchmarks.outcomes.rerankers import (
    choose_twins,
    compare_cold_start,
    count_recovery,
    hide_tool,
    summarise_drift,
)
from benchmarks.outcomes.simulated_pools import make_random_stage
from benchmarks.outcomes.simulator import EASY, make_world
from extensions.recommender.training.methods.ours import Ours
from extensions.recommender.training.methods.simple import Cosine

STAGE = make_random_stage(1, real=12, variants=20, requests=120)
WORLD = make_world(STAGE, EASY, 1)


def test_a_stream_lies_between_chance_and_the_oracle_and_is_the_same_again() -> None:
    first, second = (run_stream([(120, WORLD)], Ours, 3, refits=(50,)) for _ in range(2))
    assert first.expected == second.expected
    assert len(first.examples) == len(first.shown) == 120
    assert all(one.place in shown for one, shown in zip(first.examples, first.shown, strict=True))
    best = tell_oracle(WORLD)
    assert np.mean(first.expected) < best.mean()
    assert tell_retriever(WORLD).mean() < best.mean()


def test_what_learns_ends_above_what_does_not() -> None:
    ours = run_stream([(120, WORLD)], Ours, 3, refits=(40, 80)).expected
    cosine = run_stream([(120, WORLD)], Cosine, 3).expected
    assert np.mean(ours[60:]) > np.mean(cosine[60:])


def test_recovery_counts_until_the_way_back_is_gone() -> None:
    back = [0.1] * 400 + [0.4] * 150 + [0.1] * 400
    assert 200 < (count_recovery(back, 400) or 0) <= 300
    assert count_recovery([0.1] * 400 + [0.4] * 400, 400) is None
    assert count_recovery([0.4] * 400 + [0.1] * 400, 400) is None


def test_recovery_of_seeds_that_differ_has_an_interval_that_holds_both() -> None:
    soon = [0.1] * 400 + [0.4] * 150 + [0.1] * 850
    late = [0.1] * 400 + [0.4] * 500 + [0.1] * 500
    never = [0.1] * 400 + [0.4] * 1000
    found = summarise_drift(np.array([soon, late] * 4), 400, draws=200)
    low, high = found["interval"]
    assert low <= found["requests_to_recover"] <= high
    assert found["seeds"] == 8
    assert summarise_drift(np.array([never] * 3), 400, draws=20)["interval"] == [None, None]


def test_a_twin_that_comes_late_is_no_candidate_before() -> None:
    [twin] = choose_twins(WORLD, 1)
    assert twin >= STAGE.real
    hidden = hide_tool(WORLD, twin)
    assert not any(twin in question.candidates for question in hidden.questions)
    found = compare_cold_start([WORLD], [1], ["cosine"])["methods"]["cosine"]
    assert 0 <= found["n"] <= 50
    assert found["n"] == 0 or 0 <= found["shown"] <= 1
