"""A base is known by its files where it lies here, and by its commit where it does not."""

from pathlib import Path

import pytest

from assets.vectors.encoders.weights import find_base_path
from training.caller.smollm2 import name_smollm2_base
from training.role import (
    get_causal_base_name,
    get_retriever_base_name,
    is_same_base,
)

A, B, COMMIT = "a" * 16, "b" * 16, f"some/base@{'c' * 40}"


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        (f"/models/x@{A}", f"/models/x@{B}", False),  # its files changed where they lay
        (f"/models/x@{A}", f"/elsewhere/x@{A}", True),  # the same files, moved
        (f"/models/x@{A}", f"sentence-transformers:/models/x@{A}", False),  # pooled otherwise
        (f"{COMMIT}@{A}", COMMIT, True),  # a commit says what its files are
        (f"{COMMIT}@{A}", COMMIT.replace("c", "d"), False),
        (f"/models/x@{A}", "/models/x", True),  # gone for now: the place is the same
        (f"smollm2:{A}", f"smollm2:{B}", False),  # another template
        (f"smollm2:{A}", "/models/causal", False),
    ],
)
def test_bases_are_told_apart(then: str, now: str, same: bool) -> None:
    assert is_same_base(then, now) is same


def test_a_folder_is_named_with_its_files_and_a_hub_id_is_never_fetched(tmp_path: Path) -> None:
    known = {get_retriever_base_name(name) for name in ("minilm", "", "minilm-l6-v2")}
    assert known == {"minilm-l6-v2"}
    assert get_retriever_base_name(COMMIT) == COMMIT
    assert get_retriever_base_name(str(tmp_path)) == str(tmp_path)  # no model: its training says so
    assert get_causal_base_name("/gone") == "/gone"
    assert get_causal_base_name("smollm2") == name_smollm2_base()
    assert get_retriever_base_name(str(find_base_path())).startswith(f"{find_base_path()}@")
