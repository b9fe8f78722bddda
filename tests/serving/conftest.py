"""A built index over a few snapshots, without any model."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from assets.vectors.index import embed_texts
from serving.index.build import build_index, move_pointer
from serving.index.model import IndexSource
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.storage.lance import LanceStore

SNAPSHOT_ROWS = [
    snapshot("npm:files", "read_file", "Read one text file from disk"),
    snapshot("npm:files", "write_file", "Write one text file to disk"),
    snapshot("pypi:clock", "get_time", "Tell the time in a city"),
    snapshot("pypi:clock", "get_time", "Tell the time in a city", market="mcpso"),
    snapshot("pypi:mail", "send_email", "Send an email to somebody"),
]


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


def build(home: Path, rows: list[dict], embedder: WordEmbedder, release: str = "r1") -> str:
    def embed(texts: Sequence[str]) -> np.ndarray:
        return embed_texts(texts, embedder, LanceStore(home / "lance"))

    return build_index(home, IndexSource(rows), embed, embedder=embedder.id, release=release)


@pytest.fixture(scope="session")
def _served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A home with the index of SNAPSHOT_ROWS, which tests copy, and what was embedded for it."""
    folder, embedder = tmp_path_factory.mktemp("served"), WordEmbedder()
    move_pointer(folder, build(folder, SNAPSHOT_ROWS, embedder))
    return folder, embedder.embedded


@pytest.fixture
def home(tmp_path: Path, embedder: WordEmbedder, _served: tuple[Path, list[str]]) -> Path:
    shutil.copytree(_served[0], tmp_path, dirs_exist_ok=True)
    embedder.embedded += _served[1]
    return tmp_path
