"""Rows, splits and a trained home, as the tests of training have them."""

from tests.training.conftest import (  # noqa: F401
    made,
    pool,
    rows,
    snapshots_and_pairs,
    test_rows,
    train_rows,
    trained_home,
)
