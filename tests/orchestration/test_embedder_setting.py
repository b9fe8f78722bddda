"""One setting names the encoder of indexes, nightly assets and training."""

import json

import numpy as np
import pytest

from assets.vectors.encoders.embedder import BadEmbedder, Prompts, embed_queries
from assets.vectors.encoders.minilm import MiniLM, make_general_name, open_general
from assets.vectors.scale import ScaledEmbedder
from extensions.bench.ablation_run import choose_ablation_settings
from orchestration.factories import make_embedder, make_index_embedder, make_trainer
from orchestration.settings.load import SettingsError, load_settings
from serving.index.folder import load_index, read_served_version
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.vectors.small_models import make_bert, make_qwen3
from training.retriever.settings import NONE

MODEL = "TOOLMILL_EMBEDDER__MODEL"


def test_the_shipped_retriever_indexes_and_starts_and_minilm_alone_bounds(monkeypatch):
    settings, trainer = load_settings(), make_trainer(load_settings())
    nightly = make_embedder(settings)
    assert isinstance(nightly, MiniLM)
    assert make_index_embedder(settings).id == open_general().id
    assert make_index_embedder(settings).id.startswith(f"{nightly.id}+")
    assert (trainer.retriever_base, trainer.retriever.start) == ("minilm", make_general_name())
    arms = choose_ablation_settings(trainer)
    assert (arms.retriever.start, arms.caller.update_tokens) == (NONE, None)
    monkeypatch.setenv(MODEL, "minilm")
    settings = load_settings()
    assert make_index_embedder(settings) is make_embedder(settings) is nightly
    assert make_trainer(settings).retriever.start == NONE


def test_one_setting_names_the_encoder_of_all(tmp_path, monkeypatch):
    folder = make_bert(tmp_path / "bert")
    monkeypatch.setenv(MODEL, f"sentence-transformers:{folder}")
    settings = load_settings()
    nightly, plain = make_embedder(settings), make_index_embedder(settings)
    assert isinstance(nightly, ScaledEmbedder)  # bounds on cosines are MiniLM's
    assert plain is nightly.inner
    assert plain.id.startswith("sentence-transformers:bert/")
    trainer = make_trainer(settings)
    assert trainer.retriever_base == f"sentence-transformers:{folder}"
    assert trainer.retriever.start == NONE
    monkeypatch.setenv("TOOLMILL_TRAINING__RETRIEVER__BASE", "/another")
    with pytest.raises(SettingsError, match="TOOLMILL_TRAINING__RETRIEVER__BASE"):
        load_settings()


def test_the_embedder_in_use_is_what_is_trained(monkeypatch):
    monkeypatch.setenv(MODEL, "sentence-transformers:/models/qwen")
    trainer = make_trainer(load_settings())
    assert trainer.retriever_base == "sentence-transformers:/models/qwen"
    assert choose_ablation_settings(trainer).retriever_base == trainer.retriever_base
    assert trainer.retriever.start == NONE
    monkeypatch.setenv(MODEL, "openai:m@http://127.0.0.1:1/v1")  # nothing of it can be trained
    assert make_trainer(load_settings()).retriever_base == "minilm"


def test_prompts_are_settings_too(tmp_path, monkeypatch):
    monkeypatch.setenv(MODEL, f"sentence-transformers:{make_bert(tmp_path / 'bert')}")
    plain = make_index_embedder(load_settings())
    monkeypatch.setenv("TOOLMILL_EMBEDDER__QUERY_PROMPT", "query: ")
    index_embedder = make_index_embedder(load_settings())
    assert np.abs(embed_queries(index_embedder, ["a"]) - plain.embed(["query: a"])).max() < 1e-6
    assert np.abs(index_embedder.embed(["a"]) - plain.embed(["a"])).max() < 1e-6


def test_trainings_of_the_embedder_take_its_prompts(monkeypatch):
    monkeypatch.setenv("TOOLMILL_EMBEDDER__QUERY_PROMPT", "query: ")
    for model, taken in (
        ("sentence-transformers:/models/e5", True),
        ("openai:m@http://127.0.0.1:1/v1", False),  # MiniLM is trained
    ):
        monkeypatch.setenv(MODEL, model)
        trainer = make_trainer(load_settings())
        assert trainer.retriever.prompts == Prompts("query: " if taken else None), model
        assert choose_ablation_settings(trainer).retriever.prompts == trainer.retriever.prompts
    monkeypatch.setenv("TOOLMILL_EMBEDDER__DOCUMENT_PROMPT", "x" * 2_001)
    with pytest.raises(SettingsError, match=r"DOCUMENT_PROMPT.*expected at most 2,000 \(found 'x"):
        load_settings()


def test_an_index_by_the_setting_is_searched_by_the_setting(tmp_path, monkeypatch):
    folder = make_qwen3(tmp_path / "qwen")
    monkeypatch.setenv(MODEL, f"sentence-transformers:{folder}")
    servers, index = written(tmp_path / "s.jsonl", CLOCK, MAIL), tmp_path / "index"
    code, out, err = run("index", servers, "--out", index)
    assert code == 0, err
    assert json.loads(out)["embedder"].startswith("sentence-transformers:qwen/32@")
    assert load_index(index, read_served_version(index)).block.shape[1] == 32
    code, out, err = run("search", "--index", index, "send an email", "--json")
    assert code == 0, err
    assert json.loads(out)["hits"][0]["tool"] == "send_email"  # by its words: weights are random
    code, out, err = run("index", servers, "--out", index, "--embedder", "minilm")  # beside it
    assert code == 0, err
    assert run("search", "--index", index, "send an email")[0] == 0


def test_an_encoder_that_cannot_be_had_or_has_no_such_form_is_one_line(monkeypatch):
    for spec, message in (
        ("sentence-transformers:owner/model", "names no revision"),
        ("sentence-transformers:owner/model@main", "'main' is no commit"),
    ):
        monkeypatch.setenv(MODEL, spec)
        with pytest.raises(BadEmbedder, match=message) as refused:
            make_embedder(load_settings())
        assert "\n" not in str(refused.value)
    monkeypatch.setenv(MODEL, "e5")
    with pytest.raises(SettingsError, match=f"{MODEL}..*'e5': expected one of general"):
        load_settings()
