"""The vector store keeps each key once, whoever writes, and gives vectors back in order."""

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess
from warehouse.storage import lance
from warehouse.storage.lance import DuplicateKeys, LanceStore, make_vector_key


def rows(names: list[str], embedder: str = "e", dim: int = 8) -> list[dict]:
    rng = np.random.default_rng(len(names))
    return [
        {"key": make_vector_key(name, embedder), "text_digest": name, "embedder": embedder,
         "kind": "tool", "text": f"{name} reads the weather",
         "vector": (vector / np.linalg.norm(vector)).astype(np.float32)}
        for name, vector in zip(names, rng.normal(size=(len(names), dim)), strict=True)
    ]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> LanceStore:
    return LanceStore(tmp_path / "lance")


def test_a_key_is_inserted_once_and_vectors_come_in_the_order_asked(store):
    result = rows(["a", "b", "c"])
    assert store.insert(result[:2]) == 2
    assert store.insert(result) == 1
    assert store.insert(result) == 0
    assert store.count() == 3
    result = rows([f"t{i}" for i in range(1200)])
    store.insert(result)
    asked = [result[i] for i in (1100, 3, 700, 3)]
    outcome = store.vectors([row["key"] for row in asked])
    assert np.allclose(outcome, [row["vector"] for row in asked])


def test_vectors_of_another_length_stand_beside_the_first(store):
    short, long = rows(["a", "b"], "short"), rows(["a", "c"], "long", dim=12)
    assert (store.insert(short), store.insert(long)) == (2, 2)
    assert (store.insert(short), store.insert(long), store.count()) == (0, 0, 4)
    keys = [row["key"] for row in long]
    assert np.abs(store.vectors(keys) - np.stack([row["vector"] for row in long])).max() == 0
    assert store.vectors([short[0]["key"]]).shape == (1, 8)
    assert store.find_missing([*keys, "none"]) == {"none"}
    first = store.tag("set-1")
    store.insert(rows(["d"], "long", dim=12))
    assert store.tag("set-1") > first
    store.compact()
    assert store.vectors(keys).shape == (2, 12)


def test_old_versions_go_though_a_tag_kept_one(store):
    result = rows([f"t{i}" for i in range(6)])
    for row in result[:3]:
        store.insert([row])
    store.tag("set-1")
    for row in result[3:]:
        store.insert([row])
        store.compact()
    files = list((store.root / "texts.lance" / "data").iterdir())
    store.compact(older_than=timedelta(microseconds=1))
    assert len(list((store.root / "texts.lance" / "data").iterdir())) < len(files)
    assert store.list_tags() == ["set-1"]
    assert store.vectors([row["key"] for row in result]).shape == (6, 8)
    import lancedb

    opened = lancedb.connect(store.root).open_table(lance.TEXTS)
    opened.checkout(opened.tags.get_version("set-1"))
    assert opened.count_rows() == 6


def test_a_table_of_few_files_is_not_written_anew(store):
    for row in rows(["a", "b", "c"]):
        store.insert([row])
    version = store.tag("now")
    store.compact(pieces=3)
    assert store.tag("now") == version
    store.compact(pieces=2)
    assert store.tag("now") > version


def test_an_empty_store_answers_with_nothing_and_a_missing_vector_is_named(store):
    assert store.count() == 0
    assert store.find_missing(["e|word"]) == {"e|word"}
    store.compact()
    assert store.count() == 0
    with pytest.raises(KeyError, match="nothing to tag"):
        store.tag("set-1")
    keys = [row["key"] for row in rows(["it's", "b"])]
    assert store.find_missing(keys) == set(keys)
    store.insert(rows(["it's", "b"])[:1])
    assert store.find_missing(keys) == {keys[1]}
    assert store.find_missing([]) == set()
    with pytest.raises(KeyError, match="embed it again"):
        store.vectors([make_vector_key("nope", "e")])


def test_a_repeated_key_is_reported(store, monkeypatch):
    store.insert(rows(["a"]))
    import lancedb

    table = lancedb.connect(store.root).open_table(lance.TEXTS)
    table.add(table.to_arrow())  # what two writers without the lock would leave
    with pytest.raises(DuplicateKeys, match="repeat a key"):
        store.insert(rows(["a", "b"]))


INSERT = """
import sys
from pathlib import Path
from tests.warehouse.storage.test_lance import rows
from warehouse.storage.lance import LanceStore
LanceStore(Path(sys.argv[1])).insert(rows([f"t{i}" for i in range(50)]))
"""


def test_processes_that_write_the_same_keys_leave_each_once(store):
    command = [sys.executable, "-c", INSERT, str(store.root)]
    workers = [PythonProcess(command, cwd=ROOT) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert store.count() == 50
