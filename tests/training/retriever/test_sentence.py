"""Any sentence-transformers model learns as a BERT does, as its own modules pool and prompt."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.vectors.encoders import hub, minilm, sentence_model
from assets.vectors.encoders.choose import open_base, open_retriever
from assets.vectors.encoders.embedder import BadEmbedder, Prompts, embed_queries
from assets.vectors.encoders.saved import EncoderBroken, open_encoder, save_encoder
from assets.vectors.encoders.weights import BadAdapter
from serving.export import export_release
from serving.index.build import make_router_index
from serving.index.model import IndexSource
from serving.ranking.query import ToolQuery
from serving.router import open_router
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.training.retriever.test_retriever_course import assert_one_gradient, weights
from tests.vectors.small_models import INSTRUCTION, make_bert, make_modern_bert, make_qwen3, write
from training.evaluation.retriever import BASE_LABEL, load_retriever
from training.retriever import train
from training.retriever.gradient_cache import CachedText
from training.retriever.settings import NONE, RetrieverSettings
from training.runtime.model_store import (
    TrainingFailed,
    TrainingJob,
    get_model_folder,
    read_job,
    read_model_card,
    write_job,
)
from warehouse.storage.lance import LanceStore

SETTINGS = RetrieverSettings(
    epochs=8, tools=24, first_layer=1, threads=1, checkpoint_steps=2, device="cpu",
    learning_rate=2e-2, temperature=0.1,
)  # fmt: skip
TEXTS = ["find two files", "Delete for good a song by its title", "half \ud800"]
MAKERS = {"modern": make_modern_bert, "qwen": make_qwen3, "bert": make_bert}
QWEN = [f"self_attn.{name}_proj" for name in "qkvo"]
QWEN += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
BERT = [f"attention.self.{name}" for name in ("query", "key", "value")]
BERT += ["attention.output.dense", "intermediate.dense", "output.dense"]
LAYERS = {"modern": {"attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"}, "qwen": {*QWEN}, "bert": {*BERT}}


def job(home: Path, base: str, rows: list, settings: RetrieverSettings = SETTINGS) -> TrainingJob:
    named = train.resolve_retriever_base(base)
    _, path = write_job(home, "retriever", named, "set", asdict(settings), rows)
    return read_job(path)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("bases")
    return {name: f"sentence-transformers:{make(place / name)}" for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def trained(
    bases: dict[str, str], train_rows: list, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, dict]]:
    """(home, card by the base's name)."""
    home = tmp_path_factory.mktemp("home")
    return home, {
        name: train.train_retriever(job(home, base, train_rows), lambda _: None)
        for name, base in bases.items()
    }


def place_of(base: str) -> str:
    return base.removeprefix("sentence-transformers:")


@pytest.mark.parametrize("name", list(MAKERS))
def test_the_loss_falls_and_the_linear_layers_are_adapted(trained, bases, name):
    home, cards = trained
    made = cards[name]
    assert made["loss_last"] < made["loss_first"]
    assert made["steps"] == len(made["losses"]) == 8
    assert made["tokens"] > 0
    assert made["base"].startswith(f"{bases[name]}@")
    assert made["base"].endswith(f"@{made['base_digest'][:16]}")
    held = weights(home, made["name"])
    found = {tuple(key.partition("layer")[2].partition(".lora_")[0].split(".", 2)) for key in held}
    assert {(at, layer) for _, at, layer in found} == {("1", layer) for layer in LAYERS[name]}


@pytest.mark.parametrize("name", list(MAKERS))
def test_the_encoder_merges_what_torch_and_peft_compute(trained, bases, name):
    from peft import PeftModel
    from sentence_transformers import SentenceTransformer

    home, cards = trained
    folder = get_model_folder(home, cards[name]["name"])
    model: Any = SentenceTransformer(place_of(bases[name]))
    PeftModel.from_pretrained(model[0].auto_model, str(folder)).eval()
    whole = [text.replace("\ud800", "?") for text in TEXTS]
    documents = model.encode_document(whole, normalize_embeddings=True)
    queries = model.encode_query(whole, normalize_embeddings=True)
    served = load_retriever(home, cards[name]["name"])
    assert np.abs(served.embed(TEXTS) - documents).max() < 1e-4
    assert np.abs(embed_queries(served, TEXTS) - queries).max() < 1e-4
    plain = load_retriever(home, f"{BASE_LABEL}@{cards[name]['base']}")
    assert np.abs(served.embed(TEXTS) - plain.embed(TEXTS)).max() > 1e-3
    assert served.id != plain.id


def test_a_training_reads_texts_as_served_with_one_gradient(bases, train_rows, tmp_path):
    for base in bases.values():
        asked = job(tmp_path, base, train_rows)
        passes = train.begin_course(asked, asked.base, train_rows, SETTINGS).passes
        encoder = sentence_model.SentenceEncoder(place_of(base), threads=1)
        documents = passes.encode_texts(passes.list_documents(TEXTS)).numpy()
        queries = passes.encode_texts(passes.list_queries(TEXTS)).numpy()
        assert np.abs(documents - encoder.embed(TEXTS)).max() < 1e-5
        assert np.abs(queries - encoder.embed_queries(TEXTS)).max() < 1e-5
    course = train.begin_course(asked, bases["qwen"], train_rows, SETTINGS)
    assert course.passes.prompts == Prompts(INSTRUCTION)

    def list_items(passes: Any) -> list:
        texts = [row["instruction"] for row in train_rows]
        return [*passes.list_queries(texts), *passes.list_documents(texts[:3])]

    assert_one_gradient(tmp_path, bases["qwen"], train_rows, list_items, SETTINGS)


def test_an_adapter_of_another_base_or_odd_halves_is_refused_by_name(trained, bases, tmp_path):
    home, cards = trained
    folder = get_model_folder(home, cards["qwen"]["name"])
    with pytest.raises(BadAdapter, match=r"belongs to another base model: it was .* on .*qwen"):
        open_retriever(folder, base=bases["modern"])
    with pytest.raises(BadAdapter, match="belongs to another base model"):
        minilm.MiniLM(folder, threads=1)
    unnamed = shutil.copytree(folder, tmp_path / "unnamed")
    config = json.loads((unnamed / "adapter_config.json").read_text())
    write(unnamed / "adapter_config.json", {**config, "base_model_name_or_path": None})
    with pytest.raises(BadAdapter, match=r"adapts layers\.1.*the base has no such matrix"):
        open_retriever(unnamed, base=bases["modern"])
    moved = shutil.copytree(home / "models", tmp_path / "models") / cards["qwen"]["name"]
    card = {**(read_model_card(tmp_path, moved.name) or {}), "base": cards["modern"]["base"]}
    write(moved / "model.json", card)
    with pytest.raises(BadAdapter, match=r"belongs to another base model.*train again"):
        load_retriever(tmp_path, moved.name)
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(get_model_folder(home, cards["bert"]["name"]), tmp_path / "odd")
    file = str(folder / "adapter_model.safetensors")
    held = load_file(file)
    name = next(key for key in held if "lora_A" in key)
    save_file({**held, name: held[name][:3].copy()}, file)
    with pytest.raises(BadAdapter, match=r"lora_A\.weight is \(3, \d+\), its other half"):
        open_retriever(folder, base=bases["bert"])


def test_an_adapter_from_elsewhere_opens_no_model_that_nobody_named(trained, bases, monkeypatch):
    home, cards = trained
    folder = get_model_folder(home, cards["qwen"]["name"])
    monkeypatch.setattr(hub, "_named", set())
    with pytest.raises(BadAdapter, match="which you did not name; nothing of it was opened"):
        open_retriever(folder)
    wanted = load_retriever(home, cards["qwen"]["name"]).id
    assert open_retriever(folder, base=bases["qwen"]).id == wanted
    with pytest.raises(BadAdapter, match="which you did not name"):
        open_retriever(folder)
    hub.allow_embedder(cards["qwen"]["base"])
    assert open_retriever(folder).id == wanted


def test_a_saved_encoder_holds_its_adapter_and_names_a_base(trained, bases, tmp_path, monkeypatch):
    home, cards = trained
    monkeypatch.setattr(hub, "_named", set())
    made = load_retriever(home, cards["modern"]["name"])
    folder = save_encoder(made, tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        *("encoder.json", "adapter_config.json", "adapter_model.safetensors")
    }
    with pytest.raises(BadEmbedder, match="which you did not name"):
        open_encoder(tmp_path, made.id, threads=1)
    hub.allow_embedder(bases["modern"])
    again = open_encoder(tmp_path, made.id, threads=1)
    assert np.abs(again.embed(TEXTS) - made.embed(TEXTS)).max() < 1e-6
    (folder / "adapter_model.safetensors").write_bytes(b"other")
    with pytest.raises(EncoderBroken, match=r"adapter_model\.safetensors has 5 bytes"):
        open_encoder(tmp_path, made.id, threads=1)


def test_an_export_names_the_base_and_holds_the_adapter(trained, bases, tmp_path, monkeypatch):
    home, cards = trained
    name = cards["qwen"]["name"]
    monkeypatch.setattr(hub, "_named", set())
    encoder, store = load_retriever(home, name), LanceStore(tmp_path / "lance")
    make_router_index(tmp_path, IndexSource(SNAPSHOT_ROWS), store, name, "r1", encoder=encoder)
    with pytest.raises(BadEmbedder, match="which you did not name"):
        export_release(tmp_path, tmp_path / "out")
    hub.allow_embedder(bases["qwen"])
    manifest = export_release(tmp_path, tmp_path / "out")
    assert (manifest["embedder"], manifest["models"]) == (encoder.id, {"retriever": name})
    held = {Path(file).name for file in manifest["files"] if file.startswith("encoders/")}
    assert held == {"encoder.json", "adapter_config.json", "adapter_model.safetensors"}
    assert open_router(tmp_path / "out").find(ToolQuery("send an email", k=1)).hits
    monkeypatch.setattr(hub, "_named", set())
    with pytest.raises(BadEmbedder, match="which you did not name"):
        open_router(tmp_path / "out")


def test_an_index_by_command_takes_the_base_of_the_setting(trained, bases, tmp_path, monkeypatch):
    home, cards = trained
    folder = get_model_folder(home, cards["qwen"]["name"])
    monkeypatch.setattr(hub, "_named", set())
    servers = written(tmp_path / "s.jsonl", CLOCK, MAIL)
    asked = ("index", servers, "--out", tmp_path / "index", "--retriever", folder)
    code, out, err = run(*asked)
    assert (code, out) == (2, "")
    assert "which you did not name" in err
    monkeypatch.setenv("TOOLMILL_EMBEDDER__MODEL", bases["qwen"])
    code, out, err = run(*asked)
    assert code == 0, err
    assert json.loads(out)["embedder"] == load_retriever(home, cards["qwen"]["name"]).id
    code, out, err = run("search", "--index", tmp_path / "index", "send an email", "--json")
    assert code == 0, err
    assert json.loads(out)["hits"][0]["tool"] == "send_email"  # by its words: weights are random
    code, _, err = run(*asked, "--embedder", bases["modern"])
    assert code == 2
    assert "belongs to another base model" in err


def test_what_cannot_be_trained_is_said(bases, train_rows, tmp_path):
    deep = replace(SETTINGS, first_layer=2)
    with pytest.raises(TrainingFailed, match="the base has 2 layers; expected 0 to 1"):
        train.train_retriever(job(tmp_path, bases["modern"], train_rows, deep), lambda _: None)
    assert train.resolve_start(bases["bert"]) == NONE
    general = replace(SETTINGS, start="general@0123456789abcdef")
    with pytest.raises(TrainingFailed, match="start is general@0123456789abcdef over sentence-"):
        train.train_retriever(job(tmp_path, bases["bert"], train_rows, general), lambda _: None)
    for base, message in (
        ("sentence-transformers:/no/such", "no such folder"),
        ("sentence-transformers:owner/name", "names no revision"),
        (f"{bases['bert']}@0123456789abcdef", "expected 0123456789abcdef: the model changed"),
    ):
        with pytest.raises(TrainingFailed, match=message):
            train.resolve_retriever_base(base)
    routed = shutil.copytree(place_of(bases["bert"]), tmp_path / "routed")
    modules = json.loads((routed / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Router"
    write(routed / "modules.json", modules)
    with pytest.raises(TrainingFailed, match="its first module is Router, expected Transformer"):
        train.resolve_retriever_base(f"sentence-transformers:{routed}")


def test_the_users_prompts_are_learned_with_and_served_with(bases, train_rows, tmp_path):
    spec = bases["bert"]
    given = replace(SETTINGS, epochs=1, query_prompt="query: ", document_prompt="passage: ")
    prompts = Prompts("query: ", "passage: ")
    asked = job(tmp_path, spec, train_rows, given)
    assert asked.name != job(tmp_path, spec, train_rows, replace(SETTINGS, epochs=1)).name
    passes = train.begin_course(asked, asked.base, train_rows, given).passes
    encoder = open_base(spec, prompts=prompts)
    documents = passes.encode_texts(passes.list_documents(TEXTS[:2])).numpy()
    queries = passes.encode_texts(passes.list_queries(TEXTS[:2])).numpy()
    assert np.abs(documents - encoder.embed(TEXTS[:2])).max() < 1e-5
    assert np.abs(queries - embed_queries(encoder, TEXTS[:2])).max() < 1e-5
    made = train.train_retriever(asked, lambda _: None)
    folder = get_model_folder(tmp_path, made["name"])
    one, other = load_retriever(tmp_path, made["name"]), open_retriever(folder, base=spec)
    (folder / "model.json").unlink()
    plain = open_retriever(folder, base=spec)  # an adapter whose card is lost knows no prompts
    assert one.id == other.id != plain.id
    for served in (one, other):
        assert np.abs(served.embed(["a"]) - plain.embed(["passage: a"])).max() < 1e-5
        assert np.abs(embed_queries(served, ["a"]) - plain.embed(["query: a"])).max() < 1e-5
    assert load_retriever(tmp_path, f"{BASE_LABEL}@{asked.base}", prompts=prompts).id == encoder.id


def test_a_prompt_without_room_is_said_and_two_share_no_chunk(bases, train_rows, tmp_path):
    long = replace(SETTINGS, query_prompt="find a tool " * 42)
    message = "query_prompt has 126 tokens, and the model reads 32 of it"
    with pytest.raises(TrainingFailed, match=f"retriever: {message}"):
        train.train_retriever(job(tmp_path, bases["bert"], train_rows, long), lambda _: None)
    with pytest.raises(BadEmbedder, match=message):
        open_base(bases["bert"], prompts=long.prompts)
    asked = job(tmp_path, bases["qwen"], train_rows)
    passes: Any = train.begin_course(asked, asked.base, train_rows, SETTINGS).passes
    items = [CachedText(text, 8, *of) for text in ("one", "two") for of in ((), (INSTRUCTION,))]
    passes.prepare_texts(items)
    chunks = passes._split_chunks(items)
    assert sorted(item for chunk in chunks for item in chunk) == sorted(items)
    assert all(len({item.prompt for item in chunk}) == 1 for chunk in chunks)
