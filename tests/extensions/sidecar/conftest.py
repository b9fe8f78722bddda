"""Rows, splits and a trained home, as the tests of training have them."""

from tests.training.conftest import *  # noqa: F403
