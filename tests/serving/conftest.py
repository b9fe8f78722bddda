"""A built index over a few snapshots, without any model."""

import json
import os
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
def _served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the index of SNAPSHOT_ROWS, which tests copy."""
    folder = tmp_path_factory.mktemp("served")
    move_pointer(folder, build(folder, SNAPSHOT_ROWS, WordEmbedder()))
    return folder


@pytest.fixture
def home(tmp_path: Path, _served: Path) -> Path:
    return shutil.copytree(_served, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def adhoc(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file of two servers, and its index by the real encoder."""
    from tests.serving.test_adhoc import CLOCK, MAIL, run, written

    folder = tmp_path_factory.mktemp("adhoc")
    servers = written(folder / "servers.jsonl", CLOCK, MAIL)
    code, out, err = run("index", servers, "--out", folder / "index")
    assert code == 0, err
    report = json.loads(out)
    assert (report["tools"], report["servers"], report["skipped"]) == (3, 2, [])
    assert report["embedded"] > 0
    return servers, folder / "index"


@pytest.fixture
def index(adhoc: tuple[Path, Path], tmp_path: Path) -> Path:
    return copy_home(adhoc[1], tmp_path / "index")


def copy_home(source: Path, place: Path) -> Path:
    """A copy; its encoders of 90 MB, which nobody changes in place, as links."""
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("encoders"))
    shutil.copytree(source / "encoders", place / "encoders", copy_function=os.link)
    return place


def tell_sizes(version: Path, files: Sequence[str] = ()) -> None:
    """As somebody who writes an index would: sizes are as told, only the content is wrong."""
    meta = json.loads((version / "index.json").read_text())
    meta["files"] = {file: (version / file).stat().st_size for file in files or meta["files"]}
    (version / "index.json").write_text(json.dumps(meta))
