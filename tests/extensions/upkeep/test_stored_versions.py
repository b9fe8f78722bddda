"""Rows that are removed from the tables of vectors."""

import time
from datetime import timedelta

from extensions.upkeep.stored_versions import LanceVersions
from tests.warehouse.storage.test_lance import rows


def test_rows_that_are_removed_leave_no_byte_in_any_version(tmp_path):
    store = LanceVersions(tmp_path)
    result = rows(["a", "b", "c"])
    result[1]["text"] = "what must vanish"
    store.insert(result[:2])
    store.tag("set")
    store.insert(result[2:])
    store.insert(rows(["d"], "longer", dim=12))
    began = time.time()
    keys = store.find_texts(lambda texts: [n for n, one in enumerate(texts) if "vanish" in one])
    assert keys == {result[1]["key"]}
    assert store.has_versions(began)
    store.remove_rows(keys, timedelta(0))
    held = [path for path in store.root.rglob("*") if path.is_file()]
    assert not any(b"must vanish" in path.read_bytes() for path in held)
    assert not store.has_versions(began)
    assert (store.count(), store.list_tags()) == (3, ["set"]), "and the longer one beside them"
    assert store.vectors([result[0]["key"]]).tolist() == [result[0]["vector"].tolist()]
    assert store.insert(result) == 1, "the key is still one"
    assert store.check_keys() == 3
