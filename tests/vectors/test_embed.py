"""The default encoder is the pretrained MiniLM; a few words open any embedder, cosines bounded."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from assets.vectors.encoders import choose, hub, minilm, saved, sentence_model
from assets.vectors.encoders.embedder import BadEmbedder, embed_queries, measure_reading
from assets.vectors.encoders.endpoint import EndpointEncoder
from assets.vectors.encoders.graph import IDS, MASK, VECTORS
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.weights import BASE, BadAdapter, find_base_path, is_other_base
from assets.vectors.scale import REFERENCE, UNRELATED, ScaledEmbedder, get_plain, measure_unrelated
from tests.support.cases import cases

TEXTS = [
    "What time is it in Tokyo?",
    "read file\nRead the complete contents of a file.\npath: where it lies",
    "Füge eine Zeile 你好 hinzu 🙂",
    "請幫我把這份文件翻譯成英文，然後寄給王先生",
    "احذف جميع الملفات القديمة من المجلد",
    "Удали все старые файлы из папки, пожалуйста",
    "कल के मौसम का पूर्वानुमान बताओ",
    "",
    " \n\t ",
    "a",
    "x" * 400,
    "word " * 125,
    "word " * 126,
    "word " * 127,
    "word " * 400,
    "Searches all documents of the workspace, by author, folder and language. " * 60,
    "[SEP] [CLS] [PAD] [MASK] </s> \x00 \x1b[31m",
]


@pytest.fixture(scope="module")
def encoder() -> MiniLM:
    return MiniLM(threads=1)


def adapter(folder: Path, shape: tuple[int, int] = (384, 384), **config: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4, **config}))
    save_file(lora(shape), str(folder / "adapter_model.safetensors"))
    return folder


def lora(shape: tuple[int, int] = (384, 384)) -> dict[str, np.ndarray]:
    name = "base_model.model.encoder.layer.3.attention.self.query"
    rng = np.random.default_rng(1)
    return {
        f"{name}.lora_A.weight": rng.normal(size=(2, shape[1])).astype(np.float32),
        f"{name}.lora_B.weight": rng.normal(size=(shape[0], 2)).astype(np.float32),
    }


def torch_vectors(texts: list[str], model: object = None) -> np.ndarray:
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(str(find_base_path()))
    model = model or AutoModel.from_pretrained(str(find_base_path())).eval()
    fed = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**fed).last_hidden_state  # pyright: ignore[reportCallIssue]
    mask = fed["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1).numpy()


def test_vectors_are_those_of_the_torch_model_and_do_not_depend_on_the_batch(encoder):
    assert (encoder.id, encoder.dim) == ("minilm-l6-v2/128", 384)
    together = encoder.embed(TEXTS)
    assert np.abs(together - torch_vectors(TEXTS)).max() < 1e-5
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    alone = np.concatenate([encoder.embed([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-6
    assert encoder.embed([]).shape == (0, 384)
    assert (encoder.embed(["a \ud800 b"]) == encoder.embed(["a ? b"])).all()


def test_padding_changes_no_vector_and_a_text_given_twice_is_computed_once(encoder):
    import onnxruntime

    session = onnxruntime.InferenceSession(encoder.model())
    ids = np.array([[101, 2054, 2051, 102, 0, 0, 0], [101, 1, 2, 3, 4, 5, 102]], np.int64)
    mask = np.array([[1, 1, 1, 1, 0, 0, 0], [1] * 7], np.int64)
    padded = session.run([VECTORS], {IDS: ids, MASK: mask})[0]
    cut = session.run([VECTORS], {IDS: ids[:1, :4], MASK: mask[:1, :4]})[0]
    assert np.abs(padded[0] - cut[0]).max() < 1e-6
    assert np.abs(padded[0] - padded[1]).max() > 1e-2
    seen: list[tuple[int, int]] = []
    texts = ["one text", "another one", "one text"]
    vectors = encoder.embed(texts, on_done=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2, 2)
    assert (vectors[0] == vectors[2]).all()
    assert np.abs(vectors[1] - encoder.embed(["another one"])[0]).max() < 1e-6


def test_no_graph_is_built_until_a_text_is_embedded(encoder, monkeypatch):
    expected = encoder.embed(["one"])
    build, built = minilm._build_session, list[str]()

    def record(*how: Any) -> tuple[str, bytes]:
        name, model = build(*how)
        built.append(name)
        return name, model

    monkeypatch.setattr(minilm, "_build_session", record)
    idle = MiniLM()
    assert (idle.id, idle.dim, idle.count_tokens("one word")) == (encoder.id, encoder.dim, 4)
    assert built == []
    assert np.array_equal(idle.embed(["one"]), expected)
    idle.embed(["two"])
    assert built == [encoder.id]


def test_many_threads_get_the_vectors_that_one_gets():
    side_by_side = MiniLM(threads=4)
    texts = [f"{text[:60]} {number}" for number in range(4) for text in TEXTS]
    alone = side_by_side.embed(texts)
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda text: side_by_side.embed([text])[0], texts))
    assert np.abs(np.stack(found) - alone).max() < 1e-6


def test_another_cut_is_another_encoder(encoder):
    short = MiniLM(max_tokens=16, threads=1)
    assert short.id == "minilm-l6-v2/16"
    long = "Convert the attached document to a table of all the names and dates in it please now"
    assert np.abs(short.embed([long]) - encoder.embed([long])).max() > 1e-3
    with pytest.raises(BadEmbedder, match="max_tokens 1000: minilm-l6-v2 takes 3 to 512"):
        MiniLM(max_tokens=1000)


@cases("config", {}, {"use_rslora": True})
def test_a_merged_adapter_gives_the_vectors_of_peft(config, tmp_path):
    from peft import PeftModel
    from transformers import AutoModel

    folder = adapter(tmp_path / "a", peft_type="LORA", target_modules=["query"], **config)
    base = AutoModel.from_pretrained(str(find_base_path()))
    theirs = PeftModel.from_pretrained(base, str(folder)).eval()
    ours = MiniLM(folder, threads=1).embed(TEXTS[:4])
    assert np.abs(ours - torch_vectors(TEXTS[:4], theirs)).max() < 1e-5


def test_an_adapter_changes_the_vectors_and_the_id_or_is_refused(encoder, tmp_path):
    adapted = MiniLM(adapter(tmp_path / "a"), threads=1)
    assert adapted.id.startswith(f"{encoder.id}+")
    assert np.abs(adapted.embed(["hello there"]) - encoder.embed(["hello there"])).max() > 1e-3
    with pytest.raises(BadAdapter, match="no LoRA adapter"):
        MiniLM(tmp_path)
    with pytest.raises(BadAdapter, match="another base model"):
        MiniLM(adapter(tmp_path / "wide", (768, 768)))
    file = tmp_path / "a" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(BadAdapter, match="not readable as a LoRA adapter"):
        MiniLM(tmp_path / "a")


@cases(
    "config, why",
    ('{"r": 2', "JSONDecodeError"),
    ("[]", "AttributeError"),
    ('{"r": 2}', "lora_alpha"),
    ('{"r": 0, "lora_alpha": 4}', "ZeroDivisionError"),
    ('{"r": 2, "lora_alpha": 4, "use_dora": true}', "only plain LoRA"),
)
def test_an_adapter_that_cannot_be_merged_is_refused(config, why, tmp_path):
    folder = adapter(tmp_path / "a")
    (folder / "adapter_config.json").write_text(config)
    with pytest.raises(BadAdapter, match=why):
        MiniLM(folder)


@cases("change", "nothing", "bias", "half")
def test_an_adapter_with_more_or_less_than_pairs_is_refused(change, tmp_path):
    folder, tensors = adapter(tmp_path / "a"), lora()
    if change == "nothing":
        tensors = {}
    elif change == "bias":
        tensors["base_model.model.encoder.layer.3.output.dense.bias"] = np.ones(384, np.float32)
    else:
        tensors.popitem()
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    with pytest.raises(BadAdapter, match="pairs of lora_A and lora_B"):
        MiniLM(folder)


DIGEST, OTHER = "0123456789abcdef", "fedcba9876543210"


@cases(
    "named, base, other",
    (BASE, BASE, False),
    (BASE, f"org/model@{DIGEST}", True),
    (f"org/model@{DIGEST}", f"/moved/model@{DIGEST}", False),
    (f"org/model@{DIGEST}", f"org/model@{OTHER}", True),
    (f"org/model@{DIGEST}", BASE, True),
    ("org/multi-qa-MiniLM-L6-cos-v1", BASE, True),
    ("org/model", f"org/model@{'a' * 40}@{DIGEST}", False),
    ("org/model", f"org/other@{'a' * 40}@{DIGEST}", True),
    ("org/model", f"sentence-transformers:org/model@{'a' * 40}@{DIGEST}", False),
    ("org/model", f"sentence-transformers:org/other@{'a' * 40}@{DIGEST}", True),
    ("org/model", f"/any/folder@{DIGEST}", False),
)
def test_a_base_is_told_by_digest_and_by_the_hubs_name(named, base, other):
    assert is_other_base(named, base) is other


@pytest.fixture(scope="module")
def sentence() -> sentence_model.SentenceEncoder:
    embedder = choose.open_embedder(f"sentence-transformers:{find_base_path()}")
    assert isinstance(embedder, sentence_model.SentenceEncoder)
    return embedder


def test_minilm_and_the_shipped_retriever_are_opened_by_name():
    made, base = (choose.open_embedder(name) for name in ("general", "minilm"))
    assert isinstance(made, MiniLM)
    assert isinstance(base, MiniLM)
    assert base.id == "minilm-l6-v2/128"
    assert made.id.startswith(f"{base.id}+")
    assert np.abs(made.embed(TEXTS) - base.embed(TEXTS)).max() > 1e-2


@cases("spec", "", "bert", "minilm:fp8", "openai:", "sentence-transformers:", "onnx:/models/bert")
def test_an_unknown_embedder_names_those_there_are(spec):
    with pytest.raises(BadEmbedder, match=r"expected one of general, .*minilm, .*openai:<model>"):
        choose.open_embedder(spec)


def test_a_sentence_transformers_model_embeds_a_whole_index_and_its_id_names_the_weights(sentence):
    texts = [*TEXTS, TEXTS[0], "half \ud800"]
    seen: list[tuple[int, int]] = []
    found = sentence.embed(texts, on_done=lambda *done: seen.append(done))
    # The same weights, cut at the 256 tokens that its own folder names.
    assert np.abs(found - MiniLM(max_tokens=256, threads=1).embed(texts)).max() < 1e-5
    assert seen[-1] == (len(texts) - 1, len(texts) - 1)
    assert sentence.embed([]).shape == (0, 384)
    import torch

    name, _, before = sentence.id.partition("@")
    assert name == f"sentence-transformers:{find_base_path().name}/256"
    with torch.no_grad():
        weight = next(iter(sentence._model.parameters()))
        kept = weight[0, 0].item()
        weight[0, 0] += 1
        assert sentence_model.digest_model(sentence._model)[:16] != before
        weight[0, 0] = kept
    assert sentence_model.digest_model(sentence._model)[:16] == before


READ = ["turn on the light", "打开灯", "file 打开灯光", "🙂"]


def test_an_encoder_says_how_much_it_reads_however_it_is_run(sentence, tmp_path):
    embedder = choose.open_embedder("minilm")
    saved.save_encoder(embedder, tmp_path)
    stored = saved.open_encoder(tmp_path, embedder.id, threads=1)
    sentence.embed(["a much longer text, to which a batch of the same call was padded"])
    for encoder in (embedder, stored, sentence):
        assert measure_reading(encoder, READ).tolist() == [1, 0, 0.5, 1]
        assert measure_reading(encoder, []).shape == (0,)
    # An endpoint is taken to read all.
    endpoint_encoder = EndpointEncoder("m", base_url="http://127.0.0.1:1/v1", api_key="k", dim=8)
    assert measure_reading(endpoint_encoder, READ).tolist() == [1, 1, 1, 1]


def test_it_is_saved_as_the_place_of_weights_that_the_user_names(sentence, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_named", set())
    folder = saved.save_encoder(sentence, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["encoder.json"]
    for named in ("minilm", "sentence-transformers:some/other", f"openai:m@{tmp_path}"):
        hub.allow_embedder(named)
        with pytest.raises(BadEmbedder, match="set TOOLMILL_EMBEDDER__MODEL to sentence-"):
            saved.open_encoder(tmp_path, sentence.id, threads=1)
    hub.allow_embedder(f"sentence-transformers:{find_base_path()}")
    again = saved.open_encoder(tmp_path, sentence.id, threads=1)
    assert np.abs(again.embed(TEXTS[:2]) - sentence.embed(TEXTS[:2])).max() < 1e-6
    card = folder / "encoder.json"
    card.write_text(card.read_text().replace(sentence.id, "sentence-transformers:model/256@0"))
    folder.rename(saved.find_encoder_folder(tmp_path, "sentence-transformers:model/256@0"))
    with pytest.raises(saved.EncoderBroken, match="the model changed since"):
        saved.open_encoder(tmp_path, "sentence-transformers:model/256@0")


class Narrow:
    """MiniLM with all cosines pressed into the upper part of the scale, as E5's are."""

    def __init__(self, model: MiniLM, floor: float) -> None:
        self._model, self._floor = model, floor
        self.id, self.dim = f"narrow-{floor}", model.dim + 1

    def embed(self, texts: Sequence[str], **_: object) -> np.ndarray:
        rows = self._model.embed(texts) * np.float32((1 - self._floor) ** 0.5)
        last = np.full((len(rows), 1), self._floor**0.5, np.float32)
        return np.concatenate([rows, last], 1)


@cases("floor", 0.0, 0.5, 0.8)
def test_cosines_of_a_narrow_encoder_come_back_to_minilms(encoder, floor):
    assert measure_unrelated(encoder.embed(REFERENCE)) == pytest.approx(UNRELATED, abs=0.002)
    narrow = Narrow(encoder, floor)
    scaled_embedder = ScaledEmbedder(narrow)
    texts = [*TEXTS, *REFERENCE, TEXTS[0].upper(), f"{TEXTS[0]} now"]
    plain, found = encoder.embed(texts), scaled_embedder.embed(texts)
    assert found.shape == (len(texts), scaled_embedder.dim)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-5
    before, after = plain @ plain.T, found @ found.T
    assert np.abs(before - after).mean() < 0.05
    for bound in (0.3, 0.85, 0.97):
        assert ((before >= bound) == (after >= bound)).mean() > 0.98
    assert scaled_embedder.id != narrow.id
    assert get_plain(scaled_embedder) is narrow
    assert get_plain(encoder) is encoder
    asked = embed_queries(scaled_embedder, TEXTS[:2])
    assert np.abs(asked - scaled_embedder.embed(TEXTS[:2])).max() < 1e-6
