"""What a retriever may learn from; it is saved under its own name and serves without torch."""

import json
import subprocess
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.vectors.encoders.weights import BASE
from tests.support.command import run_python
from tests.support.paths import ROOT
from tests.training.small_base import small_bert, stand_in_for_minilm
from training.evaluation.retriever import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    evaluate_retriever,
    load_retriever,
    make_encoder,
    summarise_recall,
)
from training.retriever.batches import (
    collect_tools,
    find_twin_texts,
    iterate_batches,
    list_right_texts,
    select_teachable_rows,
)
from training.retriever.settings import RANDOM, RetrieverSettings
from training.retriever.train import train_retriever
from training.runtime.model_store import (
    TrainingFailed,
    get_model_folder,
    make_model_name,
    read_job,
    write_job,
)
from warehouse.storage.lance import LanceStore

SETTINGS = asdict(RetrieverSettings(epochs=2, tools=8, first_layer=5, threads=1))


@pytest.fixture(scope="module")
def trained(trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "retriever", BASE, "set-1", SETTINGS, train_rows)
    return train_retriever(read_job(path), lambda _: None)


def test_the_loss_falls_and_the_card_says_what_it_cost(trained):
    assert trained["loss_last"] < trained["loss_first"]
    assert trained["steps"] == len(trained["losses"]) == 6
    assert trained["tokens_per_s"] > 0
    assert trained["peak_mb"] > 0
    assert trained["device"] in ("cpu", "cuda")


def test_a_finished_model_is_not_trained_again(trained, trained_home, train_rows):
    _, path = write_job(trained_home, "retriever", BASE, "set-1", SETTINGS, train_rows)
    again = train_retriever(read_job(path), lambda _: pytest.fail("trained again"))
    assert again["cached"]
    assert again["losses"] == trained["losses"]


def test_the_serving_encoder_gives_the_adapters_vectors(trained, trained_home):
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
    served, untrained = (
        load_retriever(trained_home, name) for name in (trained["name"], BASE_LABEL)
    )
    assert np.abs(served.embed(texts) - expected.numpy()).max() < 1e-4
    assert np.abs(served.embed(texts) - untrained.embed(texts)).max() > 1e-3
    assert served.id != untrained.id


def test_the_evaluation_ranks_each_test_pair_by_each_model(trained, trained_home, rows, test_rows):
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


def test_a_tie_counts_against_the_model(test_rows):
    def blind(texts: list[str], _: bool) -> np.ndarray:
        return np.ones((len(texts), 2), np.float32)

    pool = sorted({row["positive"] for row in test_rows})
    ranked = evaluate_retriever(test_rows, pool, {"blind": blind}, "set")  # type: ignore[dict-item]
    assert {row["rank"] for row in ranked} == {len(pool)}


def test_nothing_to_evaluate_is_said(test_rows):
    with pytest.raises(NothingToEvaluate, match="Deploy more servers"):
        evaluate_retriever([], ["a", "b"], {}, "set")
    with pytest.raises(NothingToEvaluate, match="same items"):
        summarise_recall([], "m1")


def test_the_name_ignores_where_a_training_runs():
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


def test_a_loss_that_is_not_a_number_stops_the_training(tmp_path, train_rows, monkeypatch):
    settings = {**SETTINGS, "temperature": 1e-45, "first_layer": 1}
    small = stand_in_for_minilm(monkeypatch, small_bert(tmp_path / "small"))
    _, path = write_job(tmp_path, "retriever", small, "s", settings, train_rows)
    with pytest.raises(TrainingFailed, match="lower the rate"):
        train_retriever(read_job(path), lambda _: None)
    assert not (tmp_path / "models").exists() or not list((tmp_path / "models").glob("*"))


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "training.retriever.script", *arguments, cwd=ROOT)


def test_the_script_tells_usage_and_a_bad_job(tmp_path):
    assert script().returncode == 2
    lost = script(str(tmp_path / "lost.json"))
    assert lost.returncode == 1
    assert "not a training job" in lost.stderr


BATCHES = RetrieverSettings(epochs=2, tools=3, negatives=2)


def row(tool: int, instruction: str, near: tuple[int, ...] = (), **more: object) -> dict:
    return {
        "pair_id": f"{tool}-{instruction}",
        "contract_digest": f"c{tool}",
        "positive": f"text {tool}",
        "instruction": instruction,
        "negatives": json.dumps([f"c{one}" for one in near]),
        **more,
    }


worlds = st.lists(
    st.builds(
        row,
        st.integers(0, 7),
        st.text("abc", min_size=1, max_size=2),
        st.lists(st.integers(0, 9), max_size=6).map(tuple),
    ),
    min_size=2,
    max_size=24,
    unique_by=lambda one: one["pair_id"],
)


@given(worlds, st.integers(0, 3), st.booleans(), st.integers(1, 9))
def test_no_right_answer_is_a_wrong_one(rows, kinds, hard, seed):
    texts = sorted({one["positive"] for one in rows})
    # Vectors of a few kinds: equal ones are twins.
    turned = np.eye(8)[[int(text[-1]) % (kinds + 1) for text in texts]]
    twin = find_twin_texts(texts, turned, collect_tools(rows))
    right = list_right_texts(rows, twin)
    settings = replace(BATCHES, seed=seed, distractors="hard" if hard else RANDOM)
    made = list(iterate_batches(rows, settings, right))
    allowed = {one["instruction"]: set() for one in rows}
    for one, found in zip(rows, right, strict=True):
        assert one["positive"] in found
        assert twin[one["positive"]] <= found
        allowed[one["instruction"]] |= found
    for batch in made:
        assert len(batch.texts) == len(set(batch.texts)) > 1
        for query, target, also in zip(batch.queries, batch.targets, batch.also_right, strict=True):
            masked = {batch.texts[at] for at in also}
            wrong = set(batch.texts) - masked - {batch.texts[target]}
            assert not wrong & allowed[query]
            assert target not in also
    taught = Counter(query for batch in made for query in batch.queries)
    if len(texts) > settings.tools:
        rest = len(texts) % settings.tools
        least = len(rows) * settings.epochs if rest != 1 else 0
        assert sum(taught.values()) >= least


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_sets_share_no_batch_and_lose_no_pair(each, size, seed):
    rows = [
        row(10 * of + at, f"q{of}{at}", (10 * of + 9,), set=f"set {of}")
        for of in range(3)
        for at in range(each)
    ]
    rows += [row(10 * of + 9, f"n{of}", set=f"set {of}") for of in range(3)]
    made = list(iterate_batches(rows, replace(BATCHES, tools=size, seed=seed)))
    for batch in made:
        assert len({int(text.split()[1]) // 10 for text in batch.texts}) == 1
    taught = Counter(query for batch in made for query in batch.queries)
    asked = {one["instruction"]: BATCHES.epochs for one in rows if one["instruction"][0] == "q"}
    assert asked.items() <= taught.items()


def test_a_negative_comes_from_the_confusable_audit_and_is_no_twin():
    rows = [row(0, "a", (1, 2)), row(1, "b"), row(2, "c"), row(3, "d")]
    texts = [f"text {at}" for at in range(4)]
    vectors = np.eye(4)
    vectors[1] = vectors[0]  # tool 1 is tool 0 under another name
    right = list_right_texts(rows, find_twin_texts(texts, vectors, collect_tools(rows)))
    settings = replace(BATCHES, tools=1, negatives=3, epochs=1)
    of_first = next(
        batch for batch in iterate_batches(rows, settings, right) if batch.queries == ["a"]
    )
    assert of_first.texts == ["text 0", "text 2"]
    loose = next(batch for batch in iterate_batches(rows, settings) if batch.queries == ["a"])
    assert set(loose.texts) == {"text 0", "text 1", "text 2"}


def test_tools_of_one_name_and_description_are_one_tool():
    contract = json.dumps({"name": "list_files", "description": "List the files of a folder"})
    other = json.dumps({"name": "listFiles", "description": "List the  files of a folder"})
    rows = [row(0, "a", contract=contract), row(1, "b", contract=other), row(2, "c", contract="{}")]
    found = find_twin_texts(["text 0", "text 1", "text 2"], np.eye(3), collect_tools(rows))
    assert found["text 0"] == {"text 0", "text 1"}
    assert found["text 2"] == {"text 2"}


def test_calls_and_words_name_further_right_tools():
    calls = json.dumps([{"contract_digest": "c0"}, {"contract_digest": "c2"}])
    rows = [row(0, "a", calls=calls), row(1, "Same  words"), row(2, "c"), row(3, "same words")]
    right = list_right_texts(rows, {})
    assert right[0] == {"text 0", "text 2"}
    assert right[1] == right[3] == {"text 1", "text 3"}


def test_the_pools_trained_tools_are_negatives_and_its_twins_are_none():
    def held(name: str, split: str, *twin: str) -> dict:
        contract = {"name": name, "description": f"about {name}", "inputSchema": {}}
        return {"contract": contract, "split": split, "twins": list(twin)}

    pool = {
        "c0": held("zero", "train", "c8"),
        "c7": held("seven", "train"),
        "c8": held("eight", "train"),
        "c9": held("nine", "unseen_tool"),
    }
    rows = [row(0, "a", (7, 8, 9)), row(1, "b")]
    tools = collect_tools(rows, pool)
    assert set(tools) == {"c0", "c1", "c7", "c8"}
    texts = sorted({tool.text for tool in tools.values()})
    right = list_right_texts(rows, find_twin_texts(texts, np.eye(len(texts)), tools), tools)
    settings = replace(BATCHES, tools=1, negatives=3, epochs=1)
    made = next(
        batch for batch in iterate_batches(rows, settings, right, tools) if batch.queries == ["a"]
    )
    assert made.texts == ["text 0", tools["c7"].text]


def test_only_train_rows_with_one_call_teach():
    rows = [
        row(0, "a", split="train", task="single"),
        row(0, "b", split="train", task="lookalike"),
        row(0, "c", split="train", task="parallel"),
        row(0, "d", split="train", task="no_tool"),
        row(0, "e", split="unseen_tool", task="single"),
        row(0, " ", split="train", task="single"),
        row(0, "f"),  # rows of before there were tasks
    ]
    kept, left = select_teachable_rows(rows)
    assert [one["instruction"] for one in kept] == ["a", "b", "f"]
    assert sum(left.values()) == 4
    assert left["not of the train split"] == 1


def test_random_negatives_are_not_those_of_the_audit():
    rows = [row(at, f"q{at}", ((at + 1) % 40,)) for at in range(40)]
    settings = replace(BATCHES, tools=1, negatives=1, epochs=1)
    hard = [batch.texts[1] for batch in iterate_batches(rows, settings)]
    drawn = [
        batch.texts[1] for batch in iterate_batches(rows, replace(settings, distractors=RANDOM))
    ]
    by_row = {one["positive"]: f"text {(int(one['positive'][5:]) + 1) % 40}" for one in rows}
    assert all(
        batch.texts[1] == by_row[batch.texts[0]] for batch in iterate_batches(rows, settings)
    )
    assert hard != drawn
    assert len(set(drawn)) > 15
