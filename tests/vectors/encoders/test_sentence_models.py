"""Models that pool otherwise than MiniLM, or want words before a question, as they say."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import BadEmbedder, Embedder, Prompts, embed_queries
from assets.vectors.encoders.hub import allow_embedder, fetch_model
from assets.vectors.encoders.saved import EncoderBroken, open_encoder, save_encoder
from tests.vectors.embeddings_endpoint import embeddings_endpoint
from tests.vectors.encoders.test_bases import drop_tensor
from tests.vectors.small_models import (
    INSTRUCTION,
    add_dense,
    make_bert,
    make_modern_bert,
    make_qwen3,
    write,
)

TEXTS = ["send an email to the whole team", "the weather", "half \ud800", "a " * 200]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def open_sentence(folder: Path, prompts: Prompts | None = None) -> Embedder:
    return open_embedder(f"sentence-transformers:{folder}", threads=1, prompts=prompts)


@pytest.mark.parametrize("make", [make_modern_bert, make_qwen3, make_bert])
def test_vectors_are_those_of_sentence_transformers_itself(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = make(tmp_path)
    ours, theirs = open_sentence(folder), SentenceTransformer(str(folder))
    whole = [text.replace("\ud800", "?") for text in TEXTS]
    documents = theirs.encode_document(whole, normalize_embeddings=True)
    asked = theirs.encode_query(whole, normalize_embeddings=True)
    assert np.abs(ours.embed(TEXTS) - documents).max() < 1e-5
    assert np.abs(embed_queries(ours, TEXTS) - asked).max() < 1e-5
    assert ours.dim == 32
    assert np.abs(np.linalg.norm(ours.embed(TEXTS), axis=1) - 1).max() < 1e-5


def test_the_first_and_the_last_token_are_pooled_where_the_model_says_so(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    for name, make, place in (("first", make_modern_bert, 0), ("last", make_qwen3, -1)):
        folder = make(tmp_path / name)
        ids = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
        with torch.no_grad():
            states = AutoModel.from_pretrained(folder).eval()(
                input_ids=ids["input_ids"], attention_mask=ids["attention_mask"]
            )
        state = states.last_hidden_state[0, place].numpy()
        found = open_sentence(folder).embed(TEXTS[:2])[0]  # the other text is padded beside it
        assert np.abs(found - state / np.linalg.norm(state)).max() < 1e-5


def test_an_instruction_stands_before_questions_alone(tmp_path: Path) -> None:
    sentence = open_sentence(make_qwen3(tmp_path))
    documents, asked = sentence.embed([TEXTS[0]]), embed_queries(sentence, [TEXTS[0]])
    assert np.abs(documents - asked).max() > 1e-3
    assert np.abs(sentence.embed([INSTRUCTION + TEXTS[0]]) - asked).max() < 1e-5


def test_the_users_prompts_stand_in_place_of_the_models(tmp_path: Path) -> None:
    folder = make_qwen3(tmp_path / "model")
    plain, own = open_sentence(folder), open_sentence(folder, Prompts("ask: ", "tool: "))
    assert own.id != plain.id
    assert np.abs(embed_queries(own, ["a"]) - plain.embed(["ask: a"])).max() < 1e-5
    assert np.abs(own.embed(["a"]) - plain.embed(["tool: a"])).max() < 1e-5
    save_encoder(own, tmp_path)
    allow_embedder(f"sentence-transformers:{folder}")
    again = open_encoder(tmp_path, own.id, threads=1)
    assert np.abs(embed_queries(again, ["a"]) - embed_queries(own, ["a"])).max() < 1e-6


@pytest.mark.parametrize("kind", ["onnx", "openai"])
def test_prompts_of_an_encoder_that_brings_none_are_saved_with_it(
    kind: str, tmp_path: Path
) -> None:
    prompts = Prompts("query: ", "passage: ")
    with embeddings_endpoint() as endpoint:
        spec = {
            "onnx": f"onnx:{make_bert(tmp_path / 'bert')}",
            "openai": f"openai:m@{endpoint.url}",
        }
        plain = open_embedder(spec[kind], threads=1)
        embedder = open_embedder(spec[kind], threads=1, prompts=prompts)
        assert embedder.id != plain.id
        save_encoder(embedder, tmp_path)
        allow_embedder(spec[kind])
        again = open_encoder(tmp_path, embedder.id, threads=1)
        for item in (embedder, again):
            assert np.abs(item.embed(["a"]) - plain.embed(["passage: a"])).max() < 1e-6
            assert np.abs(embed_queries(item, ["a"]) - plain.embed(["query: a"])).max() < 1e-6


def test_prompts_that_are_no_texts_are_a_broken_encoder(tmp_path: Path) -> None:
    embedder = open_embedder("minilm", threads=1, prompts=Prompts("query: "))
    card = save_encoder(embedder, tmp_path) / "encoder.json"
    held = json.loads(card.read_text())
    for prompts in ({"query": 7}, ["query"], {"other": "a"}):
        write(card, {**held, "prompts": prompts})
        with pytest.raises(EncoderBroken, match="prompts"):
            open_encoder(tmp_path, embedder.id)
    with pytest.raises(BadEmbedder, match="at most 2,000"):
        Prompts("x" * 2_001)


def test_a_model_that_does_not_say_how_it_pools_is_refused(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    for body in ("[]", "{", "7"):
        (folder / "modules.json").write_text(body)
        with pytest.raises(BadEmbedder, match=r"modules\.json"):
            open_sentence(folder)
    (folder / "modules.json").unlink()
    with pytest.raises(BadEmbedder, match=r"has no modules\.json"):
        open_sentence(folder)


def test_a_layer_whose_weights_are_a_pickle_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    dense = add_dense(make_bert(tmp_path / "model"))
    assert open_sentence(dense.parent).dim == 12
    (dense / "model.safetensors").rename(dense / "pytorch_model.bin")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle was read"))
    with pytest.raises(BadEmbedder, match=r"dense/pytorch_model\.bin: a pickle.*as safetensors"):
        open_sentence(dense.parent)


@pytest.mark.parametrize(
    "lost", ["encoder.layer.1.output.dense.weight", "embeddings.word_embeddings.weight"]
)
def test_weights_that_a_file_lacks_are_not_made_up(lost: str, tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "model")
    drop_tensor(folder / "model.safetensors", lost)
    with pytest.raises(BadEmbedder, match=rf"weights have no {lost} \(1 missing\)"):
        open_sentence(folder)


def test_a_model_without_the_pooler_that_it_does_not_use_keeps_its_id(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "model")
    for end in ("weight", "bias"):
        drop_tensor(folder / "model.safetensors", f"pooler.dense.{end}")
    assert open_sentence(folder).id == open_sentence(folder).id


@pytest.mark.parametrize("named", ["intfloat/e5", "intfloat/e5@main", "/no/such/model"])
def test_a_hub_model_without_its_commit_is_refused_before_anything_is_asked(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(BadEmbedder, match="expected"):
        open_embedder(f"sentence-transformers:{named}")


def test_a_hub_model_is_read_at_its_commit_and_named_by_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = make_bert(tmp_path / "snapshot"), []

    def snapshot_download(name: str, **options: object) -> str:
        asked.append((name, options["revision"]))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    embedder = open_embedder(f"sentence-transformers:owner/bert@{COMMIT}", threads=1)
    assert asked == [("owner/bert", COMMIT)]
    assert embedder.id.startswith("sentence-transformers:owner/bert/32@")
    save_encoder(embedder, tmp_path)
    with pytest.raises(BadEmbedder, match="which you did not name"):
        open_encoder(tmp_path, embedder.id)
    monkeypatch.setenv("EMBEDDER_MODEL", f"owner/bert@{COMMIT}")
    assert open_encoder(tmp_path, embedder.id, threads=1).id == embedder.id


@pytest.mark.live
def test_a_small_model_of_the_hub_embeds_at_its_commit() -> None:
    if os.environ["HF_HUB_OFFLINE"] != "0":
        pytest.skip("fetches 471 MB (multilingual E5 small) where HF_HUB_OFFLINE=0 allows it")
    name = "intfloat/multilingual-e5-small@fd1525a9fd15316a2d503bf26ab031a61d056e98"
    assert (fetch_model(name, ("*.json",)) / "modules.json").is_file()
    prompts = Prompts("query: ", "passage: ")
    torch_made = open_embedder(f"sentence-transformers:{name}", prompts=prompts)
    onnx_made = open_embedder(f"onnx:{name}", prompts=prompts)
    texts = ["Quel temps fait-il à Paris ?", "天气"]
    assert np.abs(torch_made.embed(texts) - onnx_made.embed(texts)).max() < 1e-4
