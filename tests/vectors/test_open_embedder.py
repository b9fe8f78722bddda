"""A few words open any embedder, or say which words there are."""

from pathlib import Path

import numpy as np
import pytest

from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import BadEmbedder, Prompts, add_prompts, measure_reading
from assets.vectors.encoders.endpoint import EndpointEncoder
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.saved import (
    EncoderBroken,
    find_encoder_folder,
    open_encoder,
    save_encoder,
)
from assets.vectors.encoders.sentence_model import SentenceEncoder, digest_model
from assets.vectors.encoders.weights import find_base_path
from tests.vectors.test_embed import TEXTS


@pytest.fixture(scope="module")
def sentence() -> SentenceEncoder:
    embedder = open_embedder(f"sentence-transformers:{find_base_path()}", threads=1)
    assert isinstance(embedder, SentenceEncoder)
    return embedder


def test_minilm_is_the_default_encoder() -> None:
    embedder = open_embedder("minilm", threads=1)
    assert isinstance(embedder, MiniLM)
    assert embedder.id == "minilm-l6-v2/128"


def test_the_shipped_retriever_is_opened_by_name() -> None:
    made, base = open_embedder("general", threads=1), MiniLM(threads=1)
    assert isinstance(made, MiniLM)
    assert made.id.startswith(f"{base.id}+")
    assert np.abs(made.embed(TEXTS) - base.embed(TEXTS)).max() > 1e-2


@pytest.mark.parametrize("spec", ["", "bert", "minilm:fp8", "openai:", "sentence-transformers:"])
def test_an_unknown_embedder_names_those_there_are(spec: str) -> None:
    with pytest.raises(BadEmbedder, match=r"expected one of general, .*minilm, .*openai:<model>"):
        open_embedder(spec)


def test_a_sentence_transformers_model_embeds_a_whole_index(sentence: SentenceEncoder) -> None:
    texts = [*TEXTS, TEXTS[0], "half \ud800"]
    seen: list[tuple[int, int]] = []
    found = sentence.embed(texts, on_done=lambda *done: seen.append(done))
    # The same weights, cut at the 256 tokens that its own folder names.
    assert np.abs(found - MiniLM(max_tokens=256, threads=1).embed(texts)).max() < 1e-5
    assert seen[-1] == (len(texts) - 1, len(texts) - 1)
    assert sentence.embed([]).shape == (0, 384)


READ = ["turn on the light", "打开灯", "file 打开灯光", "🙂"]


def test_an_encoder_says_how_much_it_reads_however_it_is_run(
    sentence: SentenceEncoder, tmp_path: Path
) -> None:
    embedder = open_embedder("minilm", threads=1)
    prompted = open_embedder("minilm", threads=1, prompts=Prompts("all that stands before: "))
    save_encoder(embedder, tmp_path)
    stored = open_encoder(tmp_path, embedder.id, threads=1)
    sentence.embed(["a much longer text, to which a batch of the same call was padded"])
    for encoder in (embedder, prompted, stored, sentence):
        assert measure_reading(encoder, READ).tolist() == [1, 0, 0.5, 1]
        assert measure_reading(encoder, []).shape == (0,)


def test_an_endpoint_is_taken_to_read_all() -> None:
    endpoint_encoder = EndpointEncoder("m", base_url="http://127.0.0.1:1/v1", api_key="k", dim=8)
    for encoder in (endpoint_encoder, add_prompts(endpoint_encoder, Prompts("query: "))):
        assert measure_reading(encoder, READ).tolist() == [1, 1, 1, 1]


def test_its_id_names_the_weights(sentence: SentenceEncoder) -> None:
    import torch

    name, _, before = sentence.id.partition("@")
    assert name == f"sentence-transformers:{find_base_path().name}/256"
    with torch.no_grad():
        weight = next(iter(sentence._model.parameters()))
        kept = weight[0, 0].item()
        weight[0, 0] += 1
        assert digest_model(sentence._model)[:16] != before
        weight[0, 0] = kept
    assert digest_model(sentence._model)[:16] == before


def test_it_is_saved_as_the_place_of_its_weights_which_the_user_names_again(
    sentence: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_encoder(sentence, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["encoder.json"]
    for named in ("", "some/other", str(tmp_path)):
        monkeypatch.setenv("EMBEDDER_MODEL", named)
        with pytest.raises(BadEmbedder, match="set EMBEDDER_MODEL to it"):
            open_encoder(tmp_path, sentence.id, threads=1)
    monkeypatch.setenv("EMBEDDER_MODEL", str(find_base_path()))
    again = open_encoder(tmp_path, sentence.id, threads=1)
    assert np.abs(again.embed(TEXTS[:2]) - sentence.embed(TEXTS[:2])).max() < 1e-6
    card = folder / "encoder.json"
    card.write_text(card.read_text().replace(sentence.id, "sentence-transformers:model/256@0"))
    folder.rename(find_encoder_folder(tmp_path, "sentence-transformers:model/256@0"))
    with pytest.raises(EncoderBroken, match="the model changed since"):
        open_encoder(tmp_path, "sentence-transformers:model/256@0")


def test_a_model_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadEmbedder, match=r"no such folder; expected a folder") as refused:
        open_embedder(f"sentence-transformers:{tmp_path / 'nothing'}")
    assert "\n" not in str(refused.value)
