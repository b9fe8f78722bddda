from collections.abc import Iterator
from pathlib import Path

import pytest

from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    result = Ledger(tmp_path / "state" / "ledger.db", Blobs(tmp_path / "blobs"))
    yield result
    result.close()
