"""What a retriever may learn from, how it serves, and how its ranks become figures."""

import json
import subprocess
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.vectors.encoders.weights import BASE, find_base_path
from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.python_process import run_python
from tests.training.small_base import small_bert, stand_in_for_minilm
from training.evaluation import retriever
from training.evaluation.metrics import bootstrap_mean, measure_share
from training.retriever.batches import (
    collect_tools,
    find_twin_texts,
    iterate_batches,
    list_right_texts,
    select_teachable_rows,
)
from training.retriever.encoders import BertPasses
from training.retriever.gradient_cache import CachedText
from training.retriever.settings import RANDOM, RetrieverSettings
from training.retriever.train import train_retriever
from training.runtime.model_store import TrainingFailed, get_model_folder, read_job, write_job
from warehouse.storage.lance import LanceStore

SETTINGS = asdict(RetrieverSettings(epochs=2, tools=8, first_layer=5, threads=1))


@pytest.fixture(scope="module")
def trained(trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "retriever", BASE, "set-1", SETTINGS, train_rows)
    return train_retriever(read_job(path), lambda _: None)


def test_the_loss_falls_and_it_is_trained_once(trained, trained_home, train_rows):
    assert trained["loss_last"] < trained["loss_first"]
    assert trained["steps"] == len(trained["losses"]) == 6
    assert min(trained["tokens_per_s"], trained["peak_mb"]) > 0
    assert trained["device"] in ("cpu", "cuda")
    _, path = write_job(trained_home, "retriever", BASE, "set-1", SETTINGS, train_rows)
    again = train_retriever(read_job(path), lambda _: pytest.fail("trained again"))
    assert (again["cached"], again["losses"]) == (True, trained["losses"])


def test_the_serving_encoder_gives_the_adapters_vectors(trained, trained_home):
    import torch
    from peft import PeftModel
    from transformers import AutoModel, AutoTokenizer

    texts = ["find two files", "Delete for good a song by its title"]
    tokenizer = AutoTokenizer.from_pretrained(str(find_base_path()))
    folder = str(get_model_folder(trained_home, trained["name"]))
    base = AutoModel.from_pretrained(str(find_base_path()))
    model = PeftModel.from_pretrained(base, folder).eval()
    with torch.no_grad():
        passes = BertPasses(model, tokenizer, RetrieverSettings(), "cpu")
        expected = passes.encode_texts([CachedText(text, 128) for text in texts])
        states = model(**tokenizer(texts[:1], return_tensors="pt")).last_hidden_state.mean(1)
    assert torch.allclose(expected[:1], torch.nn.functional.normalize(states, dim=-1), atol=1e-5)
    served, untrained = (
        retriever.load_retriever(trained_home, name)
        for name in (trained["name"], retriever.BASE_LABEL)
    )
    assert np.abs(served.embed(texts) - expected.numpy()).max() < 1e-4
    assert np.abs(served.embed(texts) - untrained.embed(texts)).max() > 1e-3
    assert served.id != untrained.id


def test_the_evaluation_ranks_each_test_pair_by_each_model(trained, trained_home, rows, test_rows):
    store = LanceStore(trained_home / "lance")
    names = (retriever.BASE_LABEL, trained["name"])
    models = {name: retriever.make_encoder(trained_home, name, store) for name in names}
    pool = [row["positive"] for row in rows]
    ranked = retriever.evaluate_retriever(test_rows, pool, models, "set-1")
    assert len(retriever.RETRIEVER_EVALUATION.frame(ranked)) == 2 * len(test_rows)
    assert {row["pool"] for row in ranked} == {30}
    summary = retriever.summarise_recall(ranked, trained["name"])
    assert summary["n"] == len(test_rows)
    for k in (1, 5):
        for who in ("candidate", "incumbent"):
            figure = summary[f"recall_at_{k}"][who]
            assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1
    assert summary["recall_at_5"]["candidate"]["value"] > 0.3


def test_nothing_to_evaluate_or_to_compare_is_said(test_rows):
    with pytest.raises(retriever.NothingToEvaluate, match="Deploy more servers"):
        retriever.evaluate_retriever([], ["a", "b"], {}, "set")
    with pytest.raises(retriever.NothingToEvaluate, match="same items"):
        retriever.summarise_recall([], "m1")
    rows = [item(model, "a", 1, "seen_tool") for model in ("m", "base")]
    with pytest.raises(retriever.NothingToEvaluate, match="of seen_tool; a paired comparison"):
        retriever.summarise_recall(rows, "m")
    with pytest.raises(retriever.NothingToEvaluate, match="2 items and base on 1"):
        retriever.summarise_recall(
            [item("m", "a", 1), item("m", "b", 1), item("base", "a", 1)], "m"
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
    named = {"pair_id": f"{tool}-{instruction}", "contract_digest": f"c{tool}"}
    asked = {"positive": f"text {tool}", "instruction": instruction}
    return {**named, **asked, "negatives": json.dumps([f"c{one}" for one in near]), **more}


NEAR = st.lists(st.integers(0, 9), max_size=6).map(tuple)
worlds = st.lists(
    st.builds(row, st.integers(0, 7), st.text("abc", min_size=1, max_size=2), NEAR),
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


def test_negatives_come_from_the_confusable_audit_no_twin_is_one_and_random_ones_do_not():
    rows = [row(0, "a", (1, 2)), row(1, "b"), row(2, "c"), row(3, "d")]
    texts, vectors = [f"text {at}" for at in range(4)], np.eye(4)
    vectors[1] = vectors[0]  # tool 1 is tool 0 under another name
    right = list_right_texts(rows, find_twin_texts(texts, vectors, collect_tools(rows)))
    assert batch_of_first(rows, right) == ["text 0", "text 2"]
    assert set(batch_of_first(rows)) == {"text 0", "text 1", "text 2"}
    rows = [row(at, f"q{at}", ((at + 1) % 40,)) for at in range(40)]
    settings = replace(BATCHES, tools=1, negatives=1, epochs=1)
    for batch in iterate_batches(rows, settings):
        assert batch.texts[1] == f"text {(int(batch.texts[0][5:]) + 1) % 40}"
    drawn = iterate_batches(rows, replace(settings, distractors=RANDOM))
    assert len({int(batch.texts[1][5:]) - int(batch.texts[0][5:]) for batch in drawn}) > 15


def batch_of_first(rows: list[dict], *more: Any) -> list[str]:
    batches = iterate_batches(rows, replace(BATCHES, tools=1, negatives=3, epochs=1), *more)
    return next(batch.texts for batch in batches if batch.queries == [rows[0]["instruction"]])


def test_tools_of_one_name_are_one_tool_and_calls_and_words_name_further_right_ones():
    contract = json.dumps({"name": "list_files", "description": "List the files of a folder"})
    other = json.dumps({"name": "listFiles", "description": "List the  files of a folder"})
    rows = [row(0, "a", contract=contract), row(1, "b", contract=other), row(2, "c", contract="{}")]
    found = find_twin_texts(["text 0", "text 1", "text 2"], np.eye(3), collect_tools(rows))
    assert (found["text 0"], found["text 2"]) == ({"text 0", "text 1"}, {"text 2"})
    calls = json.dumps([{"contract_digest": "c0"}, {"contract_digest": "c2"}])
    rows = [row(0, "a", calls=calls), row(1, "Same  words"), row(2, "c"), row(3, "same words")]
    right = list_right_texts(rows, {})
    assert right[0] == {"text 0", "text 2"}
    assert right[1] == right[3] == {"text 1", "text 3"}


def test_the_pools_trained_tools_are_negatives_and_its_twins_are_none():
    def held(name: str, split: str, *twin: str) -> dict:
        contract = {"name": name, "description": f"about {name}", "inputSchema": {}}
        return {"contract": contract, "split": split, "twins": list(twin)}

    pool = {name: held(name, "train") for name in ("c7", "c8")}
    pool |= {"c0": held("c0", "train", "c8"), "c9": held("c9", "unseen_tool")}
    rows = [row(0, "a", (7, 8, 9)), row(1, "b")]
    tools = collect_tools(rows, pool)
    assert set(tools) == {"c0", "c1", "c7", "c8"}
    texts = sorted({tool.text for tool in tools.values()})
    right = list_right_texts(rows, find_twin_texts(texts, np.eye(len(texts)), tools), tools)
    assert batch_of_first(rows, right, tools) == ["text 0", tools["c7"].text]


def test_only_rows_with_one_call_teach_and_only_held_out_ones_are_asked(test_rows):
    tasks = {"a": "single", "b": "lookalike", "c": "parallel", "d": "no_tool", " ": "single"}
    rows = [row(0, asked, split="train", task=task) for asked, task in tasks.items()]
    rows.append(row(0, "e", split="unseen_tool", task="single"))
    rows.append(row(0, "f"))  # rows of before there were tasks
    kept, left = select_teachable_rows(rows)
    assert [one["instruction"] for one in kept] == ["a", "b", "f"]
    assert sum(left.values()) == 4
    assert left["not of the train split"] == 1
    changes = ({"task": "no_tool", "positive": None}, {"task": "parallel"}, {"split": "train"}, {})
    changed = [{**row, **change} for row, change in zip(test_rows, changes, strict=False)]
    assert retriever.select_testable_rows(changed) == [test_rows[3]]


def item(model: str, name: str, rank: int, split: str | None = "unseen_server") -> dict:
    return {
        "model": model, "pair_id": name, "rank": rank, "split": split, "pool": 20,
        "server_id": f"s{name}", "text_digest": f"t{name}", "tool": name, "kind": "direct",
        "training_set": "set",
    }  # fmt: skip


def test_every_split_has_its_figures_and_unseen_servers_decide():
    ranks = {"unseen_server": (1, 2, 1, 11), "seen_tool": (1, 1), "unseen_tool": (3,)}
    rows = [
        item(model, f"{split}{at}", rank + (2 if model == "base" else 0), split)
        for model in ("m", "base")
        for split, held in ranks.items()
        for at, rank in enumerate(held)
    ]
    found = retriever.summarise_recall(retriever.RETRIEVER_EVALUATION.frame(rows).to_dicts(), "m")
    assert (found["n"], found["chance"]) == (4, 0.05)
    assert found["recall_at_1"]["candidate"]["value"] == 0.5
    assert found["recall_at_10"]["candidate"]["value"] == 0.75
    assert (found["recall_at_1"]["incumbent"]["value"], found["gain_at_1"]["value"]) == (0.0, 0.5)
    assert found["mrr"]["candidate"]["value"] == pytest.approx((1 + 0.5 + 1 + 1 / 11) / 4, abs=1e-4)
    assert set(found["splits"]) == set(ranks)
    assert found["splits"]["seen_tool"]["gain_at_1"]["value"] == 1.0
    assert found["splits"]["unseen_server"]["gain_mrr"] == found["gain_mrr"]


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_better_rank_is_never_worth_less(one, other):
    for name, worth in retriever.MEASURES.items():
        assert 0 <= worth(one) <= 1, name
        if one <= other:
            assert worth(one) >= worth(other)
        assert worth(1) == 1


@cases("value", np.nan, 1.0, ids=["no numbers", "a tie"])
def test_vectors_that_tell_no_tools_apart_rank_last(test_rows, value):
    def blind(texts: list, _: bool) -> np.ndarray:
        return np.full((len(texts), 2), value, np.float32)

    pool = sorted({row["positive"] for row in retriever.select_testable_rows(test_rows)})
    ranked = retriever.evaluate_retriever(test_rows, pool, {"blind": blind}, "set")  # type: ignore[dict-item]
    assert {row["rank"] for row in ranked} == {len(pool)}


def test_an_interval_agrees_with_published_values_and_draws_whole_groups():
    figure = measure_share(15, 20)
    assert (figure.value, figure.low, figure.high) == (0.75, 0.5313, 0.8881)
    assert measure_share(0, 10).low == 0.0
    assert measure_share(10, 10).high == 1.0
    assert (measure_share(0, 0).low, measure_share(0, 0).high) == (0.0, 1.0)
    values = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 5
    apart = bootstrap_mean(values, [str(i) for i in range(40)])
    together = bootstrap_mean(values, [str(v) for v in values])
    assert together.high - together.low > apart.high - apart.low
    assert bootstrap_mean([], []).n == 0
    with pytest.raises(ValueError, match="1 values but 2 groups"):
        bootstrap_mean([1.0], ["a", "b"])


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcde")), min_size=1, max_size=40))
def test_an_interval_holds_within_the_range_of_values(items):
    values, groups = [value for value, _ in items], [group for _, group in items]
    figure = bootstrap_mean(values, groups)
    assert min(values) - 1e-3 <= figure.low <= figure.high <= max(values) + 1e-3
    assert figure.n == len(items)
