"""A built index over a small world, without any model."""

from pathlib import Path

import pytest

from assets.vectors.index import embed_texts
from serving.index import build_index, entries_of, point_to
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.lance import LanceStore

WORLD = [
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
    entries = entries_of(rows)
    vectors = embed_texts([entry.text for entry in entries], embedder, LanceStore(home / "lance"))
    return build_index(home, entries, vectors, embedder=embedder.id, release=release)


@pytest.fixture
def home(tmp_path: Path, embedder: WordEmbedder) -> Path:
    point_to(tmp_path, build(tmp_path, WORLD, embedder))
    return tmp_path
