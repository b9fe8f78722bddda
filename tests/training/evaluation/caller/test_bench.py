"""A run's evaluation: the baseline, the incumbent and the candidate on the same items."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.training.evaluation.conftest import PLAN, publish_set
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_run import evaluate_candidate, load_bench
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION, GONE
from training.evaluation.predictor import CannotPredict
from training.evaluation.retriever import NothingToEvaluate
from training.gates import check_same_items
from training.role import BASELINE
from training.sets.pool import BadOffer, get_pool_path
from training.sets.training_set import TRAINING_SET, TrainingSet
from warehouse.store import Warehouse


def opened(home: Path) -> Warehouse:
    return Warehouse(home=home, state=home / "state")


def kept_caller(home: Path, name: str, adapter: Path, base: str) -> str:
    """An adapter under the home's models, with a card as training writes it."""
    folder = home / "models" / name
    shutil.copytree(adapter, folder)
    card: dict[str, Any] = {"role": "caller", "name": name, "base": base, "base_name": base}
    settings = {"context": 2048, "words": None}
    (folder / "model.json").write_text(json.dumps({**card, "settings": settings}))
    return name


def test_all_are_asked_the_same_items_and_a_lost_incumbent_is_told(
    home: Path, adapter: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.evaluation import loaded_model as module

    generated = module.generate_completions
    monkeypatch.setattr(
        module, "generate_completions", lambda *a, **k: generated(*a, **{**k, "max_new": 3})
    )
    mine = kept_caller(home, "a" * 64, adapter, str(base))
    lost = kept_caller(home, "b" * 64, adapter, "/no/such/base")
    plan = type(PLAN)(candidates=(4,), per_split=3, perturbations=1, irrelevance=1, phantom=1)
    rows, notes = evaluate_candidate(opened(home), mine, lost, plan)
    assert {row["model"] for row in rows} == {BASELINE, mine}
    assert len(notes) == 1
    assert "/no/such/base" in notes[0]
    assert check_same_items(rows, mine, BASELINE).passed
    assert len(CALLER_EVALUATION.frame(rows)) == len(rows)
    summary = summarise_calls(rows, mine)
    assert summary["gate"]["gain"]["n"] == summary["n"] > 0
    assert set(summary["gate"]) == {"gain", "fresh", "irrelevance", "phantom", "phantom_rate"}
    with pytest.raises(CannotPredict, match="/no/such/base"):
        evaluate_candidate(opened(home), lost, BASELINE, plan)


def test_requests_of_an_earlier_set_whose_tool_is_gone_are_asked(
    tmp_path: Path, made: TrainingSet
) -> None:
    first = made.rows[0]
    old = {**first, "pair_id": "p1:old", "tool": "burn_file", "server_id": "npm:file"}
    old["calls"] = json.dumps([{"name": "burn_file", "contract_digest": "c1:x", "arguments": {}}])
    home = publish_set(tmp_path / "home", [*made.rows, old], made)
    assert load_bench(opened(home)).dead == []  # the current set is no earlier one
    publish_set(home, made.rows, made)
    held = load_bench(opened(home))
    assert [(one.phantom, one.dead) for one in held.dead] == [(GONE, "burn_file")]
    asked: list[CallerItem] = [item for item in held.make_items_for(PLAN) if item.phantom == GONE]
    assert len(asked) == 1
    assert asked[0].expected == []
    beside = {tool["name"] for tool in asked[0].tools}
    assert {"find_file", "make_file", "drop_file"} <= beside  # what its server lists now


def test_a_home_that_cannot_be_measured_says_why(tmp_path: Path, home: Path) -> None:
    with pytest.raises(NothingToEvaluate, match="materialize training_set"):
        load_bench(opened(tmp_path / "empty"))
    head = opened(home).tables.head(TRAINING_SET.name)
    assert head is not None
    get_pool_path(home, head.digest).unlink()
    with pytest.raises(BadOffer, match="no pool"):
        load_bench(opened(home))
