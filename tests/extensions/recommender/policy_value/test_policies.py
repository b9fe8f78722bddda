"""What each order would have brought, estimated from one log and compared with the truth."""

import numpy as np
import pytest

from extensions.recommender.policy_value.decisions import Decision
from extensions.recommender.policy_value.policies import compare_policies, count_explored

TOOLS = ("s::best-ranked", "s::really-good", "s::bad")
WORTH = (0.4, 0.9, 0.1)
SHARE = 0.3


def draw_decisions(n: int, seed: int = 0) -> list[Decision]:
    dice = np.random.default_rng(seed)
    made = []
    for at in range(n):
        chosen = int(dice.integers(3)) if dice.random() < SHARE else 0
        propensity = SHARE / 3 + (1 - SHARE if chosen == 0 else 0)
        reward = float(dice.random() < WORTH[chosen])
        made.append(Decision(at, str(at), str(at), TOOLS, chosen, propensity, reward))
    return made


def test_the_order_by_measured_success_is_found_better_before_it_was_ever_served() -> None:
    decisions = draw_decisions(3000)
    rows = {row["policy"]: row for row in compare_policies(decisions)}
    for name, true in (("ranking", 0.4), ("measured", 0.9), ("chance", sum(WORTH) / 3)):
        for estimator in ("ips", "self_normalised", "doubly_robust"):
            found = rows[name][estimator]
            assert found["value"] == pytest.approx(true, abs=0.08), (name, estimator)
            assert found["low"] < found["value"] < found["high"]
    shown = rows["shown"]
    mean = float(np.mean([decision.reward for decision in decisions]))
    for estimator in ("ips", "self_normalised", "doubly_robust"):
        assert shown[estimator]["value"] == pytest.approx(mean, abs=1e-4)
    assert rows["measured"]["effective_n"] < shown["effective_n"] == 3000
    assert rows["measured"]["largest_weight"] == pytest.approx(10)
    counted = count_explored(decisions)
    assert counted["searches"] == counted["drawn"] == 3000
    assert counted["explored"] == pytest.approx(3000 * SHARE * 2 / 3, rel=0.1)


def test_what_is_known_of_a_search_is_not_from_its_own_query() -> None:
    """One query asked over and over teaches the model of its own fold nothing."""
    decisions = [
        Decision(at, str(at), "one query", TOOLS, at % 3, 1 / 3, float(at % 3 == 1))
        for at in range(30)
    ]
    rows = {row["policy"]: row for row in compare_policies(decisions)}
    assert rows["measured"]["ips"] == rows["ranking"]["ips"]


def test_no_explored_search_is_no_row_and_a_fixed_order_says_nothing_of_another() -> None:
    assert compare_policies([]) == []
    fixed = [Decision(1.0, str(at), str(at), TOOLS, 0, 1.0, 1.0) for at in range(5)]
    never = {"last": lambda one, _: np.eye(len(one.candidates))[-1]}
    assert compare_policies(fixed, never)[1]["ips"] is None
