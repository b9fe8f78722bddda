"""A home whose index is served with a reranker."""

import shutil
from pathlib import Path

import pytest

from tests.extensions.recommender.reranked_tools import publish_ranked


@pytest.fixture(scope="package")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("published")
    publish_ranked(home)
    return home


@pytest.fixture
def home(published: Path, tmp_path: Path) -> Path:
    return shutil.copytree(published, tmp_path / "home")
