"""A bench of servers that are written on the spot."""

import pytest

from tests.serving.calling import Bench


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)
