"""Policies over the candidates of a search, and what each would have brought."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from extensions.recommender.policy_value.decisions import Decision
from extensions.recommender.policy_value.estimators import (
    Estimate,
    Logged,
    estimate_doubly_robust,
    estimate_ips,
    estimate_self_normalised,
)

SHOWN = "shown"  # what was shown, exploring included
_FOLDS = 5
_PRIOR = 4.0  # searches' worth of the mean over all tools, in what is expected of one
Expected = Mapping[str, float]  # reward by tool id, of what stood first
Policy = Callable[[Decision, Expected], np.ndarray]  # probabilities, [candidates]


def rank_as_ranked(decision: Decision, _: Expected) -> np.ndarray:
    """The best ranked candidate first, as without exploring."""
    return np.eye(len(decision.candidates))[0]


def rank_by_chance(decision: Decision, _: Expected) -> np.ndarray:
    """Any candidate first, one as likely as another."""
    return np.full(len(decision.candidates), 1 / len(decision.candidates))


def rank_by_measured(decision: Decision, expected: Expected) -> np.ndarray:
    """The candidate first that did best in other searches; the better ranked of equal ones."""
    rewards = [expected[name] for name in decision.candidates]
    return np.eye(len(rewards))[int(np.argmax(rewards))]


POLICIES: Mapping[str, Policy] = {
    "ranking": rank_as_ranked,
    "measured": rank_by_measured,
    "chance": rank_by_chance,
}


def compare_policies(
    decisions: Sequence[Decision], policies: Mapping[str, Policy] = POLICIES
) -> list[dict[str, Any]]:
    """For what was shown and for each policy: {policy, n, effective_n, largest_weight, ips,
    self_normalised, doubly_robust}, an estimate being {value, low, high} of the reward per search,
    None where no search drew what the policy would show. What a policy or model knows of a search
    is fitted on the searches of other queries."""
    if not decisions:
        return []
    models = _fit_folds(decisions)
    held_out = [models[_choose_fold(decision)] for decision in decisions]
    shown = [np.eye(len(one.candidates))[one.chosen] * one.propensity for one in decisions]
    rows = [_estimate_policy(SHOWN, decisions, held_out, shown)]
    for name, policy in policies.items():
        wanted = [policy(*pair) for pair in zip(decisions, held_out, strict=True)]
        rows.append(_estimate_policy(name, decisions, held_out, wanted))
    return rows


def count_explored(decisions: Sequence[Decision]) -> dict[str, int]:
    """{searches, drawn: where another tool might have stood first, explored: where one did}."""
    return {
        "searches": len(decisions),
        "drawn": sum(len(decision.candidates) > 1 for decision in decisions),
        "explored": sum(decision.chosen > 0 for decision in decisions),
    }


def _estimate_policy(
    name: str,
    decisions: Sequence[Decision],
    models: Sequence[Expected],
    wanted: Sequence[np.ndarray],
) -> dict[str, Any]:
    rows = list(zip(decisions, models, wanted, strict=True))
    logged = Logged(
        rewards=np.array([decision.reward for decision in decisions]),
        propensities=np.array([decision.propensity for decision in decisions]),
        wanted=np.array([of[one.chosen] for one, _, of in rows]),
        groups=[decision.query_key for decision in decisions],
    )
    expected = np.array([by_tool[one.candidates[one.chosen]] for one, by_tool, _ in rows])
    of_policy = np.array([_expect_reward(*row) for row in rows])
    if name == SHOWN:  # every weight is 1, and the model takes nothing back
        of_policy = expected
    ips = estimate_ips(logged)
    return {
        "policy": name,
        "n": len(decisions),
        "effective_n": round(ips.effective_n, 1) if ips else 0.0,
        "largest_weight": round(float(logged.weights.max()), 2),
        "ips": _round_estimate(ips),
        "self_normalised": _round_estimate(estimate_self_normalised(logged)),
        "doubly_robust": _round_estimate(estimate_doubly_robust(logged, expected, of_policy)),
    }


def _expect_reward(decision: Decision, by_tool: Expected, probabilities: np.ndarray) -> float:
    rewards = [by_tool[name] for name in decision.candidates]
    return float(probabilities @ np.array(rewards))


def _round_estimate(found: Estimate | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {name: round(asdict(found)[name], 4) for name in ("value", "low", "high")}


def _choose_fold(decision: Decision) -> int:
    return zlib.crc32(decision.query_key.encode()) % _FOLDS


def _fit_folds(decisions: Sequence[Decision]) -> list[Expected]:
    """By fold, the smoothed reward of each tool that stood first in the searches of the others."""
    # By tool and fold: [reward, searches].
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((_FOLDS, 2)))
    total = np.zeros((_FOLDS, 2))
    for one in decisions:
        seen = np.array([one.reward, 1.0])
        sums[one.candidates[one.chosen]][_choose_fold(one)] += seen
        total[_choose_fold(one)] += seen
    names = {name for decision in decisions for name in decision.candidates}
    models: list[Expected] = []
    for fold in range(_FOLDS):
        reward, n = total.sum(axis=0) - total[fold]
        mean = (reward + 1) / (n + 2)
        held = {name: of.sum(axis=0) - of[fold] for name, of in sums.items()}
        models.append({name: _smooth_mean(held.get(name), mean) for name in names})
    return models


def _smooth_mean(held: np.ndarray | None, mean: float) -> float:
    reward, n = (0.0, 0.0) if held is None else held
    return float((reward + _PRIOR * mean) / (n + _PRIOR))
