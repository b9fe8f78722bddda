"""Other bases than MiniLM are served as their files say, or refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import BadEmbedder, Prompts, embed_queries
from assets.vectors.encoders.saved import open_encoder, save_encoder
from tests.vectors.small_models import add_dense, make_bert, write

TEXTS = ["send an email to the whole team", "the weather", "a " * 20]


def change(path: Path, **facts: Any) -> None:
    write(path, {**json.loads(path.read_text()), **facts})


def assert_like_torch(folder: Path) -> None:
    """Vectors without torch are those that sentence-transformers makes, of texts and questions."""
    ours = open_embedder(f"onnx:{folder}", threads=1)
    theirs = open_embedder(f"sentence-transformers:{folder}", threads=1)
    assert ours.dim == theirs.dim
    assert np.abs(ours.embed(TEXTS) - theirs.embed(TEXTS)).max() < 1e-4
    assert np.abs(embed_queries(ours, TEXTS) - embed_queries(theirs, TEXTS)).max() < 1e-4


def test_modules_may_lie_anywhere_in_the_model(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "model")
    (folder / "own" / "bert").mkdir(parents=True)
    for file in [
        item for item in folder.iterdir() if item.is_file() and item.name != "modules.json"
    ]:
        file.rename(folder / "own" / "bert" / file.name)
    (folder / "1_Pooling").rename(folder / "pool")
    modules = json.loads((folder / "modules.json").read_text())
    for module, path in zip(modules, ("own/bert", "pool", "2_Normalize"), strict=True):
        module["path"] = path
    write(folder / "modules.json", modules)
    write(folder / "pool" / "config.json", {"embedding_dimension": 32, "pooling_mode": "mean"})
    assert_like_torch(folder)


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [({"query": "ask: ", "document": "tool: "}, "ask: ", "tool: "),
     ({"query": "ask: ", "passage": "tool: "}, "ask: ", "tool: ")],
)  # fmt: skip
def test_prompts_of_the_model_stand_before_its_texts(
    prompts: dict[str, str], query: str, document: str, tmp_path: Path
) -> None:
    folder = make_bert(tmp_path / "model", prompts)
    assert_like_torch(folder)
    embedder = open_embedder(f"onnx:{folder}", threads=1)
    other = open_embedder(f"onnx:{make_bert(tmp_path / 'plain')}", threads=1)
    assert np.abs(embedder.embed(["a"]) - other.embed([f"{document}a"])).max() < 1e-6
    assert np.abs(embed_queries(embedder, ["a"]) - other.embed([f"{query}a"])).max() < 1e-6
    save_encoder(embedder, tmp_path)
    again = open_encoder(tmp_path, embedder.id, threads=1)
    assert np.abs(embed_queries(again, ["a"]) - embed_queries(embedder, ["a"])).max() < 1e-6
    own = open_embedder(f"onnx:{folder}", threads=1, prompts=Prompts(query="find: "))
    assert np.abs(embed_queries(own, ["a"]) - other.embed(["find: a"])).max() < 1e-6
    assert np.abs(own.embed(["a"]) - other.embed([f"{document}a"])).max() < 1e-6


def drop_tensor(file: Path, name: str) -> None:
    from safetensors.torch import load_file, save_file

    held = load_file(str(file))
    del held[name]
    save_file(held, str(file), {"format": "pt"})


def round_tensor(file: Path, name: str) -> None:
    from safetensors.torch import load_file, save_file

    held = load_file(str(file))
    save_file({**held, name: held[name].int()}, str(file), {"format": "pt"})


def add_token(folder: Path) -> None:
    held = json.loads((folder / "tokenizer.json").read_text())
    one = {"id": 10**6, "content": "<far>", "single_word": False, "lstrip": False}
    one |= {"rstrip": False, "normalized": False, "special": True}
    write(folder / "tokenizer.json", {**held, "added_tokens": [*held["added_tokens"], one]})


def begin_with_unknown_token(folder: Path) -> None:
    held = json.loads((folder / "tokenizer.json").read_text())
    held["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [10**6]
    write(folder / "tokenizer.json", held)


def add_module(folder: Path, at: int, kind: str) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    write(folder / "modules.json", [*modules[:at], {"type": kind, "path": "x"}, *modules[at:]])


def turn_around(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    write(folder / "modules.json", [modules[1], modules[0], modules[2]])


ODD: list[tuple[Callable[[Path], Any], str]] = [
    (lambda at: change(at / "1_Pooling/config.json", pooling_mode="max"), "pools by max"),
    (add_dense, "modules are Transformer, Pooling, Dense, Normalize"),
    (lambda at: change(at / "1_Pooling/config.json", pooling_mode_mean_tokens=False),
     "pools by nothing"),
    (lambda at: (at / "1_Pooling/config.json").write_text("[]"), "list, expected an object"),
    (lambda at: (at / "1_Pooling/config.json").unlink(), "not readable as JSON"),
    (turn_around, "modules are Pooling, Transformer, Normalize"),
    (lambda at: add_module(at, 2, "own_code.Layer"), "'own_code.Layer' is code of its own"),
    (lambda at: write(at / "modules.json", [{"type": "sentence_transformers.models.Transformer",
                                             "path": "../x"}]), "no folder inside"),
    (lambda at: write(at / "modules.json", [[]]), "a module without its type and path"),
    (lambda at: change(at / "config.json", is_decoder=True), "is_decoder is True"),
    (lambda at: change(at / "config.json", num_hidden_layers=3),
     "encoder.layer.2.attention.self.query.weight is missing"),
    (lambda at: change(at / "config.json", num_hidden_layers="many"), "no size"),
    (lambda at: change(at / "config.json", layer_norm_eps=None), "layer_norm_eps is 'None'"),
    (lambda at: change(at / "config.json", intermediate_size=65), r"expected \[65, 32\]"),
    (lambda at: drop_tensor(at / "model.safetensors", "embeddings.LayerNorm.bias"),
     "embeddings.LayerNorm.bias is missing"),
    (lambda at: (at / "model.safetensors").write_bytes(b"\0" * 99), "not readable as safetensors"),
    (lambda at: round_tensor(at / "model.safetensors", "embeddings.word_embeddings.weight"),
     "word_embeddings.weight holds I32"),
    (add_token, "token '<far>' is"),
    (begin_with_unknown_token, "puts token 1000000 around a text"),
    (lambda at: (at / "tokenizer.json").write_text("{}"), "not readable as a tokenizer"),
    (lambda at: write(at / "config_sentence_transformers.json", {"prompts": {"query": 7}}),
     "expected texts by name"),
    (lambda at: change(at / "1_Pooling/config.json", include_prompt=False), "include_prompt"),
    (lambda at: (change(at / "sentence_bert_config.json", do_lower_case=True),
                 change(at / "tokenizer.json", normalizer=None)), "do_lower_case"),
    (lambda at: change(at / "1_Pooling/config.json", pooling_mode=None,
                       pooling_mode_mean_tokens=True, pooling_mode_max_tokens=1),
     "pools by mean and max"),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("bert") / "model")


@pytest.mark.parametrize(("spoil", "why"), ODD, ids=[why for _, why in ODD])
def test_what_cannot_be_served_is_one_error_that_names_the_model(
    model: Path, tmp_path: Path, spoil: Callable[[Path], Any], why: str
) -> None:
    folder = shutil.copytree(model, tmp_path / "odd-model")
    spoil(folder)
    with pytest.raises(BadEmbedder, match=why) as found:
        open_embedder(f"onnx:{folder}")
    assert str(folder) in str(found.value)
    assert "\n" not in str(found.value)
