"""The real assets over one marketplace, empty at first."""

from collections.abc import Iterator

import pytest

from tests.contracts.pipeline import Pipeline
from warehouse.store import Warehouse


@pytest.fixture
def pipeline(warehouse: Warehouse) -> Iterator[Pipeline]:
    yield Pipeline(warehouse)
    warehouse.ledger.close()
