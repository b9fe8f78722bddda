"""Fixtures of the replicas' tests: a full world of a few hundred servers, switched back after."""

from collections.abc import Iterator

import pytest

from demo.server import Replicas, replicas

COUNT = 230  # more than two pages of a hundred


@pytest.fixture(scope="session")
def _full() -> Iterator[Replicas]:
    with replicas(scale="full", servers=COUNT) as running:
        yield running


@pytest.fixture
def full(_full: Replicas) -> Iterator[Replicas]:
    """Nine full replicas on day one without faults, whatever the test before did to them."""
    yield _full
    _full.switch(day=1, servers=COUNT, faults={})


@pytest.fixture(scope="module")
def standard() -> Iterator[Replicas]:
    with replicas() as running:
        yield running
