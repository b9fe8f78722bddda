"""An index version is whole, immutable and named by its content; the pointer follows."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from serving.index import (
    IndexBroken,
    IndexMissing,
    build_index,
    entries_of,
    load_index,
    make_router_index,
    point_to,
    served_version,
)
from tests.serving.conftest import WORLD, build
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.lance import LanceStore


def test_a_tool_on_two_marketplaces_is_one_entry() -> None:
    clock = next(entry for entry in entries_of(WORLD) if entry.tool == "get_time")
    assert clock.marketplaces == ("mcpso", "registry")
    assert len(entries_of(WORLD)) == 4


def test_the_same_inputs_make_the_same_version(home: Path, embedder: WordEmbedder) -> None:
    assert build(home, WORLD[::-1], embedder) == served_version(home)
    assert build(home, WORLD, embedder, release="r2") != served_version(home)


def test_a_loaded_version_holds_what_was_built(home: Path) -> None:
    index = load_index(home, served_version(home))
    assert index.release == "r1"
    assert index.embedder == "words"
    assert [entry.tool_id for entry in index.entries] == sorted(e.tool_id for e in index.entries)
    assert np.allclose(np.linalg.norm(index.vectors, axis=1), 1.0, atol=1e-5)
    assert index.lexical.scores("email").argmax() == 3


def test_a_home_without_an_index_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(IndexMissing, match="make run"):
        served_version(tmp_path)


@pytest.mark.parametrize("lost", ["vectors.npy", "tools.jsonl", "index.json", "lexical.npz"])
def test_a_version_with_a_lost_file_is_refused(home: Path, lost: str) -> None:
    version = served_version(home)
    (home / "router" / version / lost).unlink()
    with pytest.raises(IndexBroken, match="materialize router_index"):
        load_index(home, version)


def test_a_truncated_array_is_refused(home: Path) -> None:
    version = served_version(home)
    path = home / "router" / version / "vectors.npy"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(IndexBroken):
        load_index(home, version)


def test_the_pointer_does_not_move_to_a_broken_version(home: Path, embedder: WordEmbedder) -> None:
    before = served_version(home)
    other = build(home, WORLD[:2], embedder)
    (home / "router" / other / "vectors.npy").unlink()
    with pytest.raises(IndexBroken):
        point_to(home, other)
    assert served_version(home) == before


def test_what_a_kill_left_is_built_again(home: Path, embedder: WordEmbedder) -> None:
    version = served_version(home)
    (home / "router" / version / "index.json").unlink()
    assert build(home, WORLD, embedder) == version
    assert load_index(home, version).version == version


def test_an_empty_world_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 tools"):
        build_index(tmp_path, [], np.zeros((0, 4)), embedder="words")


def test_the_index_of_a_release_embeds_only_what_is_new(tmp_path: Path) -> None:
    store = LanceStore(tmp_path / "lance")
    first = make_router_index(tmp_path, WORLD, store, "base", "r1")
    assert served_version(tmp_path) == first
    held = store.count()
    grown = [*WORLD, snapshot("pypi:mail", "read_email", "Read the newest email")]
    second = make_router_index(tmp_path, grown, store, "base", "r2")
    assert store.count() == held + 1
    assert served_version(tmp_path) == second != first
    shutil.rmtree(tmp_path / "router" / first)
    assert load_index(tmp_path, second).release == "r2"
