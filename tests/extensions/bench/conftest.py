"""Rows, splits and predictors, as the tests of training's evaluation have them."""

from tests.training.evaluation.conftest import *  # noqa: F403
