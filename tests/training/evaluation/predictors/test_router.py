"""The router alone: restricted to what is offered, over its whole pool, and where it cannot be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.router import Router
from tests.training.conftest import make_rows
from tests.training.evaluation.conftest import PLAN
from tests.vectors.conftest import WordEmbedder
from training.evaluation.baselines import NOT_IN_INDEX, BaselinePredictor, RouterPredictor
from training.evaluation.caller_items import CallerItem, make_whole_pool_items
from training.evaluation.caller_run import evaluate_predictors
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.predictor import CannotPredict, PredictionRequest
from training.sets.training_set import TrainingSet


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> RouterPredictor:
    place = tmp_path_factory.mktemp("router")
    encoder = WordEmbedder()
    version = build_index(place, IndexSource(make_rows()[0]), encoder.embed, embedder=encoder.id)
    return RouterPredictor(router=Router(load_index(place, version), encoder))


def test_it_chooses_among_the_offered_tools_only(
    routed: RouterPredictor, items: list[CallerItem]
) -> None:
    plain = [i for i in items if i.perturbation == "none" and not i.phantom and i.expected]
    rows = evaluate_predictors([BaselinePredictor(), routed], plain, "set")
    mine = [row for row in rows if row["model"] == "router"]
    assert not any(row["failed"] for row in mine)
    assert all(row["known_calls"] == row["calls"] <= 1 for row in mine)
    summary = summarise_calls(rows, "router")
    assert summary["tool_ok"]["candidate"]["low"] > summary["chance"]
    called = [json.loads(row["called"])[0] for row in mine if row["tool_ok"]]
    assert called
    assert all("title" in call["arguments"] for call in called)


def test_its_word_that_no_tool_fits_is_no_call(
    routed: RouterPredictor, items: list[CallerItem]
) -> None:
    tools = items[0].tools
    answer = routed.predict([PredictionRequest("i", "zzz qqq xxyyzz", tools)])[0]
    found = routed._router.find(query="zzz qqq xxyyzz", k=1)
    assert (answer.calls == []) == found.no_tool


def test_over_the_whole_pool_it_may_take_any_tool(
    routed: RouterPredictor, made: TrainingSet
) -> None:
    items = make_whole_pool_items(made.rows, made.pool, replace(PLAN, per_split=4))
    rows = evaluate_predictors([BaselinePredictor(), routed], items, "set")
    assert {row["model"] for row in rows} == {"router"}  # nobody else can take a whole pool
    assert {row["offered"] for row in rows} == {30}
    assert any(row["tool_ok"] for row in rows)


def test_a_tool_that_the_index_does_not_hold_is_counted_apart(
    routed: RouterPredictor, items: list[CallerItem]
) -> None:
    changed = [item for item in items if item.perturbation == "renamed_tool"]
    rows = evaluate_predictors([routed], changed, "set")
    assert {row["error_kind"] for row in rows} == {NOT_IN_INDEX}
    assert all(row["failed"] for row in rows)


def test_a_place_without_an_index_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CannotPredict, match=r"no router index under .*make run"):
        RouterPredictor(tmp_path)
