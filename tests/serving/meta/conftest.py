"""A meta-server over an index of ten tools."""

from pathlib import Path

import pytest

from tests.serving.meta_server import MetaServer, publish


@pytest.fixture
def meta(tmp_path: Path) -> MetaServer:
    publish(tmp_path)
    return MetaServer(tmp_path)
