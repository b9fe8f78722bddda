"""A retriever learns, is saved whole under its own name, and serves without torch."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from assets.vectors.encoders.weights import BASE
from tests.support.paths import ROOT
from tests.support.python_process import run_python
from tests.training.small_bert import small_bert
from training.evaluation.retriever import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    evaluate_retriever,
    load_retriever,
    make_encoder,
    summarise_recall,
)
from training.retriever.settings import RetrieverSettings
from training.retriever.train import train_retriever
from training.runtime.model_store import (
    TrainingFailed,
    get_model_folder,
    make_model_name,
    read_job,
    read_model_card,
    write_job,
)
from warehouse.storage.lance import LanceStore

SETTINGS = asdict(RetrieverSettings(epochs=2, tools=8, first_layer=5, threads=1))


@pytest.fixture(scope="module")
def trained(trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "retriever", BASE, "set-1", SETTINGS, train_rows)
    return train_retriever(read_job(path), lambda _: None)


def test_the_loss_falls_and_the_card_says_what_it_cost(trained: dict) -> None:
    assert trained["loss_last"] < trained["loss_first"]
    assert trained["steps"] == len(trained["losses"]) == 6
    assert trained["tokens_per_s"] > 0
    assert trained["peak_mb"] > 0
    assert trained["device"] in ("cpu", "cuda")


def test_a_finished_model_is_not_trained_again(
    trained: dict, trained_home: Path, train_rows: list[dict]
) -> None:
    _, path = write_job(trained_home, "retriever", BASE, "set-1", SETTINGS, train_rows)
    again = train_retriever(read_job(path), lambda _: pytest.fail("trained again"))
    assert again["cached"]
    assert again["losses"] == trained["losses"]


def test_the_serving_encoder_gives_the_adapters_vectors(trained: dict, trained_home: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModel, AutoTokenizer

    from assets.vectors.encoders.weights import find_base_path
    from training.retriever.encoders import BertPasses
    from training.retriever.gradient_cache import CachedText

    texts = ["find two files", "Delete for good a song by its title"]
    tokenizer = AutoTokenizer.from_pretrained(str(find_base_path()))
    folder = str(get_model_folder(trained_home, trained["name"]))
    model = PeftModel.from_pretrained(
        AutoModel.from_pretrained(str(find_base_path())), folder
    ).eval()
    with torch.no_grad():
        passes = BertPasses(model, tokenizer, RetrieverSettings(), "cpu")
        expected = passes.encode_texts([CachedText(text, 128) for text in texts])
        states = model(**tokenizer(texts[:1], return_tensors="pt")).last_hidden_state.mean(1)
    plain = torch.nn.functional.normalize(states, dim=-1)
    assert torch.allclose(expected[:1], plain, atol=1e-5)
    served = load_retriever(trained_home, trained["name"]).embed(texts)
    assert np.abs(served - expected.numpy()).max() < 1e-4
    assert np.abs(served - load_retriever(trained_home, BASE_LABEL).embed(texts)).max() > 1e-3


def test_the_evaluation_ranks_every_test_pair_by_every_model(
    trained: dict, trained_home: Path, rows: list[dict], test_rows: list[dict]
) -> None:
    store = LanceStore(trained_home / "lance")
    models = {
        name: make_encoder(trained_home, name, store) for name in (BASE_LABEL, trained["name"])
    }
    pool = [row["positive"] for row in rows]
    ranked = evaluate_retriever(test_rows, pool, models, "set-1")
    assert len(RETRIEVER_EVALUATION.frame(ranked)) == 2 * len(test_rows)
    assert {row["pool"] for row in ranked} == {30}
    summary = summarise_recall(ranked, trained["name"])
    assert summary["n"] == len(test_rows)
    for k in (1, 5):
        for who in ("candidate", "incumbent"):
            figure = summary[f"recall_at_{k}"][who]
            assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1
    assert summary["recall_at_5"]["candidate"]["value"] > 0.3


def test_a_tie_counts_against_the_model(test_rows: list[dict]) -> None:
    def blind(texts: list[str], _: bool) -> np.ndarray:
        return np.ones((len(texts), 2), np.float32)

    pool = sorted({row["positive"] for row in test_rows})
    ranked = evaluate_retriever(test_rows, pool, {"blind": blind}, "set")  # type: ignore[dict-item]
    assert {row["rank"] for row in ranked} == {len(pool)}


def test_nothing_to_evaluate_is_said(test_rows: list[dict]) -> None:
    with pytest.raises(NothingToEvaluate, match="Deploy more servers"):
        evaluate_retriever([], ["a", "b"], {}, "set")
    with pytest.raises(NothingToEvaluate, match="same items"):
        summarise_recall([], "m1")


def test_the_name_ignores_where_a_training_runs() -> None:
    here = make_model_name("retriever", BASE, "s", {"seed": 1, "device": "cpu", "threads": 2})
    assert here == make_model_name(
        "retriever", BASE, "s", {"seed": 1, "device": "cuda", "threads": 8}
    )
    assert here != make_model_name(
        "retriever", BASE, "s", {"seed": 2, "device": "cpu", "threads": 2}
    )
    assert here != make_model_name(
        "retriever", BASE, "s2", {"seed": 1, "device": "cpu", "threads": 2}
    )


def test_one_tool_is_nothing_to_learn(tmp_path: Path, train_rows: list[dict]) -> None:
    _, path = write_job(tmp_path, "retriever", BASE, "s", SETTINGS, train_rows[:1])
    with pytest.raises(TrainingFailed, match="fewer than two tools"):
        train_retriever(read_job(path), lambda _: None)


def test_another_base_is_refused(tmp_path: Path, train_rows: list[dict]) -> None:
    _, path = write_job(tmp_path, "retriever", "/no/bert-large", "s", SETTINGS, train_rows)
    with pytest.raises(TrainingFailed, match=r"/no/bert-large: no such folder.*mean pooling"):
        train_retriever(read_job(path), lambda _: None)


def test_a_loss_that_is_not_a_number_stops_the_training(
    tmp_path: Path, train_rows: list[dict]
) -> None:
    settings = {**SETTINGS, "temperature": 1e-45, "first_layer": 1}
    small = str(small_bert(tmp_path / "small"))
    _, path = write_job(tmp_path, "retriever", small, "s", settings, train_rows)
    with pytest.raises(TrainingFailed, match="lower the rate"):
        train_retriever(read_job(path), lambda _: None)
    assert not (tmp_path / "models").exists() or not list((tmp_path / "models").glob("*"))


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "training.retriever.script", *arguments, cwd=ROOT)


def test_the_script_tells_usage_and_a_bad_job(tmp_path: Path) -> None:
    assert script().returncode == 2
    lost = script(str(tmp_path / "lost.json"))
    assert lost.returncode == 1
    assert "not a training job" in lost.stderr


@pytest.mark.slow  # by default the caller's: both go on from the checkpoints of `training/runtime`
def test_a_killed_training_leaves_no_model_and_the_next_one_finishes_it(
    tmp_path: Path, train_rows: list[dict]
) -> None:
    short = {**SETTINGS, "epochs": 1}
    name, path = write_job(tmp_path, "retriever", BASE, "s", short, train_rows)
    command = [sys.executable, "-m", "training.retriever.script", str(path)]
    killed = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    for line in killed.stderr:  # the first loss line: training is under way
        if "loss=" in line:
            break
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    killed.stderr.close()
    assert read_model_card(tmp_path, name) is None
    began = time.time()
    card = train_retriever(read_job(path), lambda _: None)  # the script itself: `test_pipes.py`
    assert card["name"] == name
    assert {"tokens_per_s", "step_ms", "peak_mb", "device"} <= card.keys()
    assert (get_model_folder(tmp_path, name) / "model.json").stat().st_mtime >= began - 1
    assert [p.name for p in (tmp_path / "models").iterdir()] == [name]
