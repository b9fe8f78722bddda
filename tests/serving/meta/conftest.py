"""A meta-server over an index of ten tools."""

from pathlib import Path

import pytest

from tests.serving.meta_server import MetaServer, open_meta


@pytest.fixture
def meta(tmp_path: Path) -> MetaServer:
    return open_meta(tmp_path)
