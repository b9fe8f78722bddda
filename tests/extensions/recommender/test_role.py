"""The role reranker: what it needs, what it learns, and what its evaluation says."""

from pathlib import Path

import pytest

from extensions.publishing.model_card import write_card
from extensions.recommender.call_history import make_examples, split_calls
from extensions.recommender.evaluation import (
    RERANKER_EVALUATION,
    evaluate_reranker,
    summarise_reranker,
)
from extensions.recommender.role import UNTRAINED_ORDER, find_lack, load_reranker
from tests.support.reranked import JOBS, draw_calls, order_rows, train
from tests.vectors.conftest import WordEmbedder
from training.adapter_table import check_adapter_rules, make_adapter_row, make_adapter_table
from training.gates import as_rows
from training.role import check_evaluation, find_weights_flaw
from training.runtime.model_store import get_model_folder


@pytest.mark.parametrize(
    ("worked", "failed", "tools", "lacks"),
    [(150, 50, 8, False), (199, 0, 50, True), (190, 10, 50, True), (0, 0, 0, True),
     (100, 100, 7, True), (100, 99, 50, True)],
)  # fmt: skip
def test_too_few_outcomes_are_said_to_be_so(
    worked: int, failed: int, tools: int, lacks: bool
) -> None:
    said = find_lack([True] * worked + [False] * failed, tools)
    assert (said is not None) is lacks
    if said:
        assert f"{worked} worked, {failed} failed" in said


def test_a_reranker_of_calls_passes_its_gates_and_is_a_whole_model(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    learnt, held_out = split_calls(draw_calls(500))
    assert not {*learnt["query"]} & {*held_out["query"]}
    card = train(tmp_path, learnt, embedder)
    assert train(tmp_path, learnt, embedder) == card  # the same calls again train nothing
    assert all(verdict.passed for verdict in check_adapter_rules(tmp_path, card))
    make_adapter_table("reranker").frame([make_adapter_row(card)])
    served = order_rows(tmp_path, embedder)
    pool = served.pool
    models = {card["name"]: load_reranker(tmp_path, card, pool), UNTRAINED_ORDER: None}
    asked = {f"tell me the {job} of a city good": f"npm:good::good_{job}" for job in JOBS}
    questions = served.ask(asked)
    requests = [(questions[text], pool.places[name]) for text, name in asked.items()]
    calls = make_examples(held_out, pool, served.ask)
    rows = evaluate_reranker(models, calls, requests, pool, served.score, "set")
    RERANKER_EVALUATION.frame(rows)
    gates, summary = check_evaluation(
        "reranker", rows, card["name"], UNTRAINED_ORDER, summarise_reranker
    )
    assert {gate.name: gate.passed for gate in gates} == {
        "same_items": True, "enough_tools": True, "gain": True, "requests": True,
    }  # fmt: skip
    card_path = write_card(tmp_path, card["name"], summary=summary, gates=as_rows(gates))
    told = card_path.read_text() if card_path else ""
    assert "AUC, calls that worked" in told
    assert "lora" not in told.lower()
    assert summary["auc"]["candidate"]["value"] > 0.8 > summary["auc"]["incumbent"]["value"]


def test_weights_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    card = train(tmp_path, draw_calls(60), WordEmbedder())
    folder = get_model_folder(tmp_path, card["name"])
    assert find_weights_flaw("reranker", folder) is None
    (folder / "reranker.npz").write_bytes(b"PK no archive")
    assert "reranker" in str(find_weights_flaw("reranker", folder))


def test_calls_that_all_worked_are_no_evaluation(tmp_path: Path) -> None:
    served = order_rows(tmp_path, WordEmbedder())
    calls = make_examples(draw_calls(60), served.pool, served.ask)
    fine = [call for call in calls if call.success]
    rows = evaluate_reranker({"a": None, "b": None}, fine, [], served.pool, served.score, "set")
    gates, _ = check_evaluation("reranker", rows, "a", "b", summarise_reranker)
    assert {gate.name: gate.passed for gate in gates} == {"same_items": True, "measured": False}
