"""A hub model is named with its commit; a folder needs none."""

from pathlib import Path

import pytest

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.hub import UnpinnedModel, split_hub_id
from assets.vectors.encoders.minilm import name_base
from training.caller.train import resolve_base
from training.runtime.model_store import TrainingFailed

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_hub_id_at_a_commit_is_a_name_and_a_revision() -> None:
    assert split_hub_id(f"Qwen/Qwen3-0.6B@{COMMIT}") == ("Qwen/Qwen3-0.6B", COMMIT)
    assert split_hub_id(f"gpt2@{COMMIT}") == ("gpt2", COMMIT)


def test_a_folder_needs_no_revision(tmp_path: Path) -> None:
    assert split_hub_id(str(tmp_path)) == (str(tmp_path), None)
    assert resolve_base(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("Qwen/Qwen3-0.6B", r"names no revision; expected Qwen/Qwen3-0\.6B@<commit>"),
        ("Qwen/Qwen3-0.6B@main", r"'main' is no commit; expected Qwen/Qwen3-0\.6B@<commit>"),
        ("/no/such/model", "no such folder"),
        ("../a/b/c", "no such folder"),
    ],
)
def test_what_is_not_pinned_is_refused_with_the_fix(model: str, message: str) -> None:
    with pytest.raises(UnpinnedModel, match=message):
        split_hub_id(model)
    with pytest.raises(TrainingFailed, match=message):
        resolve_base(model)
    with pytest.raises(BadEmbedder, match=message):
        name_base(model)


def test_what_is_downloaded_is_the_commit_that_was_named(monkeypatch, tmp_path: Path) -> None:
    asked = []

    def snapshot_download(name: str, **options: object) -> str:
        asked.append((name, options["revision"]))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(BadEmbedder, match=r"has no modules\.json"):
        name_base(f"owner/bert@{COMMIT}")
    assert asked == [("owner/bert", COMMIT)]


def test_a_callers_base_is_read_at_its_commit(monkeypatch) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from training.caller.bases import load_base

    asked = []

    def read(name: str, **options: object) -> None:
        asked.append((name, options.get("revision")))
        if len(asked) == 3:
            raise OSError("no network")

    monkeypatch.setattr(AutoConfig, "from_pretrained", read)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", read)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", read)
    with pytest.raises(TrainingFailed, match="does not load: no network"):
        load_base(f"owner/model@{COMMIT}", "cpu")
    assert asked == [("owner/model", COMMIT)] * 3
