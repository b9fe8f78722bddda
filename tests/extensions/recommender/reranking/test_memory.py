import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.recommender.reranking.memory import (
    MEMORY_FEATURES,
    Recalled,
    add_outcome,
    measure_memory,
)

NORTH, EAST = np.eye(2, 4)
DID, FAILED, DRAWN, TRIED = range(len(MEMORY_FEATURES))


def recall(memory: dict[str, Recalled], question: np.ndarray) -> np.ndarray:
    return measure_memory(memory, ["a", "b"], np.stack([EAST, EAST]), question)


def test_a_tool_is_drawn_to_what_it_did_and_told_from_what_it_failed_at() -> None:
    memory: dict[str, Recalled] = {}
    for _ in range(4):
        add_outcome(memory, "a", NORTH, True, 1.0)
        add_outcome(memory, "a", EAST, False, 1.0)
    at_north, at_east = recall(memory, NORTH)[0], recall(memory, EAST)[0]
    assert at_north[DID] > at_north[FAILED] == 0
    assert at_east[FAILED] > at_east[DID] == 0
    assert at_north[DRAWN] > 0 > at_east[DRAWN]
    assert at_north[TRIED] == pytest.approx(np.log(9))


def test_nothing_is_recalled_of_a_tool_never_tried() -> None:
    memory: dict[str, Recalled] = {}
    add_outcome(memory, "a", NORTH, True, 1.0)
    assert not recall(memory, NORTH)[1].any()


def test_what_was_read_is_not_written_into() -> None:
    memory: dict[str, Recalled] = {}
    add_outcome(memory, "a", NORTH, True, 1.0)
    held = memory["a"]
    add_outcome(memory, "a", NORTH, True, 1.0)
    assert (held.won == NORTH).all()
    assert memory["a"].wins == 2.0


@given(rows=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=20))
def test_features_stay_finite(rows: list[tuple[bool, float]]) -> None:
    memory: dict[str, Recalled] = {}
    for success, weight in rows:
        add_outcome(memory, "a", np.array([np.nan, 1.0, np.inf, 0.0]), success, weight)
    assert np.isfinite(recall(memory, EAST)).all()
