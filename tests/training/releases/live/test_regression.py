"""A worse release is found at a few fixed looks, and one that is no worse hardly ever."""

import random

import pytest

from training.releases.regression import compare_releases, compute_tail, count_units
from training.settings import RollbackPolicy

POLICY = RollbackPolicy(alpha=0.05, min_units=50, min_drop=0.0)


def draw_units(seed: int, share: float, n: int) -> list[bool]:
    chance = random.Random(seed)
    return [chance.random() < share for _ in range(n)]


def is_ever_worse(now: list[bool], before: list[bool], policy: RollbackPolicy = POLICY) -> bool:
    """As a sensor that ticks all the time."""
    return any(
        compare_releases(now[:size], before, policy).worse for size in range(25, len(now) + 1, 75)
    )


def test_false_alarms_over_400_logs_stay_under_alpha_however_often_one_looks() -> None:
    logs = 400
    drawn = [(draw_units(one, 0.8, 800), draw_units(10_000 + one, 0.8, 400)) for one in range(logs)]
    alarms = [compare_releases(now, before, POLICY).worse for now, before in drawn]
    assert sum(alarms) <= POLICY.alpha * logs
    # A log holds all looks that were taken while it grew: an alarm of any of them is still told.
    assert [is_ever_worse(*one) for one in drawn[:30]] == alarms[:30]


def test_a_planted_regression_is_found_in_nearly_all_of_200_logs() -> None:
    policy = RollbackPolicy()
    found = sum(
        is_ever_worse(draw_units(seed, 0.6, 400), draw_units(10_000 + seed, 0.85, 400), policy)
        for seed in range(200)
    )
    assert found >= 190


def test_a_drop_that_is_certain_but_small_is_let_be() -> None:
    before, now = [True] * 9_900 + [False] * 100, [True] * 9_600 + [False] * 400
    random.Random(1).shuffle(now)
    assert compare_releases(now, before, RollbackPolicy(min_drop=0.0)).worse
    assert not compare_releases(now, before, RollbackPolicy(min_drop=0.15)).worse


def test_too_few_questions_of_either_decide_nothing() -> None:
    for now, before in (([False] * 99, [True] * 500), ([False] * 500, [True] * 99)):
        found = compare_releases(now, before, RollbackPolicy(min_units=100))
        assert (found.worse, found.looks) == (False, 0)
        assert "too few questions" in found.describe()


def test_what_an_early_look_decided_stays_decided() -> None:
    now, before = [False] * 100 + [True] * 5_000, [True] * 300
    first = compare_releases(now[:100], before, RollbackPolicy())
    assert first.worse
    assert compare_releases(now, before, RollbackPolicy()) == first


@pytest.mark.parametrize(
    ("table", "p"),
    # By hand: hypergeometric sums; the second is Fisher's tea (4 cups of 8, 3 right).
    [((1, 1, 0, 1), 0.5), ((3, 4, 1, 4), 17 / 70), ((0, 5, 3, 5), 1.0), ((5, 5, 0, 5), 1 / 252)],
)
def test_the_tail_is_the_exact_one(table: tuple[int, int, int, int], p: float) -> None:
    assert compute_tail(*table) == pytest.approx(p)


def make_line(at: float, status: str, **facts: str) -> dict:
    return {"at": at, "token": "ann", "index": "v1", "status": status, **facts}


def test_a_question_counts_once_by_its_last_call() -> None:
    lines = [
        make_line(1, "tool_error", query="q1", tool_id="a"),
        make_line(2, "ok", query="q1", tool_id="b"),
        make_line(3, "ok", query="q2"),
        make_line(4, "failed", query="q2"),
        {**make_line(5, "failed", query="q2"), "token": "bob"},
    ]
    assert count_units(lines, ["v1"], 0.0) == [True, False, False]
    assert count_units(lines, ["v1"], 3.5) == [False, False]
    assert count_units(lines, ["v2"], 0.0) == []


def test_neither_claims_nor_faults_elsewhere_nor_what_did_not_run_count() -> None:
    others = [
        make_line(1, "reported", tool_id="a", reported="failed"),
        make_line(2, "searched", query="q"),
        make_line(3, "declined", tool_id="a"),
        make_line(4, "failed", tool_id="a", blame="credentials"),
        make_line(5, "failed", tool_id="a", blame="upstream"),
    ]
    assert count_units(others, ["v1"], 0.0) == []
