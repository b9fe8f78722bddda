"""A small stage over an endpoint that echoes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extensions.batch.batch_runs import Stage, echo
from tests.support.batch_endpoint import batch_endpoint


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with batch_endpoint(echo) as server:
        yield Stage(tmp_path, server)
