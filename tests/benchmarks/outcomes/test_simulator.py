import numpy as np
import pytest

from benchmarks.outcomes.simulated_pools import make_random_stage
from benchmarks.outcomes.simulator import (
    HELD_OUT,
    TUNED,
    draw_judged,
    drift_world,
    make_world,
)

STAGE = make_random_stage(1, real=12, variants=20, requests=60)
WORLD = make_world(STAGE, TUNED, 1)


def test_a_world_is_a_function_of_its_seed() -> None:
    assert (make_world(STAGE, TUNED, 1).chance == WORLD.chance).all()
    assert (make_world(STAGE, TUNED, 2).chance != WORLD.chance).any()
    assert (make_world(STAGE, HELD_OUT, 1).chance != WORLD.chance).any()


def test_a_variant_never_does_better_than_its_origin() -> None:
    ratio = WORLD.chance / np.maximum(WORLD.chance[:, STAGE.origin], 1e-12)
    assert ratio.max() <= 1 + 1e-9
    assert ratio[:, STAGE.real :].mean() < 0.9
    assert set(WORLD.modes[: STAGE.real]) == {"none"}


def test_the_right_tool_is_mostly_the_best_of_the_real_ones() -> None:
    own = WORLD.chance[np.arange(60), STAGE.requests.gold]
    assert (own[:, None] >= WORLD.chance[:, : STAGE.real]).mean() > 0.9


def test_judged_rows_follow_the_true_chances_and_name_candidates() -> None:
    rows = [one for seed in range(20) for one in draw_judged(WORLD, seed, 60, 3)]
    assert len({(row.task, row.place) for row in rows[:180]}) == 180
    assert all(row.place in row.question.candidates[:8] for row in rows)
    expected = np.mean([WORLD.chance[int(row.task[5:]), row.place] for row in rows])
    assert np.mean([row.success for row in rows]) == pytest.approx(expected, abs=0.03)


def test_drift_changes_the_share_of_tools_that_was_asked_for() -> None:
    later = drift_world(WORLD, 0.25, 3)
    changed = (later.chance != WORLD.chance).any(0)
    assert 0 < changed.sum() <= 8
    assert ((later.chance >= 0) & (later.chance < 1)).all()
