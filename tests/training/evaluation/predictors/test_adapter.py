"""A local model answers the items; what cannot be loaded is one clear error."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.evaluation.conftest import PLAN
from tests.training.small_base import TEMPLATE, make_base
from training.evaluation.adapter_predictor import (
    NOT_RENDERABLE,
    TOO_LONG,
    AdapterPredictor,
    resolve_model,
)
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.caller_items import CallerItem, make_items
from training.evaluation.caller_run import evaluate_predictors
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.predictor import CannotPredict, PredictionRequest
from training.sets.training_set import TrainingSet
from warehouse.errors import UnusableInput


def test_a_folder_of_an_adapter_is_asked_like_any_caller(
    adapter: Path, items: list[CallerItem], tmp_path: Path
) -> None:
    some = items[:20]
    asked = AdapterPredictor(tmp_path, adapter, device="cpu", max_new=8, batch=8)
    progress: list[tuple[int, int]] = []
    rows = evaluate_predictors([BaselinePredictor(), asked], some, "set")
    mine = [row for row in rows if row["model"] == asked.label]
    assert len(CALLER_EVALUATION.frame(rows)) == 40
    assert all(row["prompt_tokens"] > 0 and row["seconds"] > 0 for row in mine)
    assert all(row["completion_tokens"] <= 16 for row in mine)
    assert summarise_calls(rows, asked.label)["items"] == 20
    answers = asked.predict(
        [PredictionRequest("i", "Find it.", some[0].tools)], lambda n, of: progress.append((n, of))
    )
    assert progress == [(1, 1)]
    assert answers[0].shown == len(some[0].tools)


def test_a_conversation_that_the_template_refuses_is_an_answer_that_failed(
    made: TrainingSet, tmp_path: Path
) -> None:
    items = make_items(made.rows, made.pool, replace(PLAN, per_split=100))
    refuses = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    base = make_base(tmp_path / "base", template=refuses + TEMPLATE)
    asked = AdapterPredictor(tmp_path, base, device="cpu", max_new=4)
    repaired = next(i for i in items if i.before and i.before[-1]["role"] == "tool")
    clarified = next(i for i in items if i.before and i.expected and i.before != repaired.before)
    rows = evaluate_predictors([asked, BaselinePredictor()], [repaired, clarified], "set")
    assert [row["error_kind"] for row in rows if row["failed"]] == [NOT_RENDERABLE]
    assert {row["item_id"] for row in rows if not row["failed"]} == {
        clarified.item_id, repaired.item_id,
    }  # fmt: skip


def test_a_whole_model_in_a_folder_is_asked_too(
    base: Path, items: list[CallerItem], tmp_path: Path
):
    asked = AdapterPredictor(tmp_path, base, device="cpu", max_new=4)
    assert len(asked.predict([PredictionRequest("i", "Find it.", items[0].tools)])) == 1


def test_what_does_not_fit_the_context_is_dropped_or_counted(
    base: Path, items: list[CallerItem], tmp_path: Path
) -> None:
    short = tmp_path / "short"
    shutil.copytree(base, short)
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 700}))
    many = next(item for item in items if item.candidates == 12 and item.expected)
    keep = frozenset([many.expected[0]["name"]])
    asked = AdapterPredictor(tmp_path, short, device="cpu", max_new=8)
    fits, never = asked.predict(
        [
            PredictionRequest("a", many.instruction, many.tools, keep=keep),
            PredictionRequest("b", "find " * 2000, many.tools),
        ]
    )
    assert fits.shown is not None
    assert 1 <= fits.shown < 12
    assert fits.prompt_tokens <= 692
    assert never.error == TOO_LONG


def empty(folder: Path, _: Path) -> None:
    (folder / "notes.txt").write_text("nothing here")


def without_weights(folder: Path, adapter: Path) -> None:
    shutil.copy(adapter / "adapter_config.json", folder)


def with_broken_weights(folder: Path, adapter: Path) -> None:
    shutil.copy(adapter / "adapter_config.json", folder)
    (folder / "adapter_model.safetensors").write_bytes(b"\x08")


def over_no_base(folder: Path, adapter: Path) -> None:
    shutil.copytree(adapter, folder, dirs_exist_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "/no/such/base"
    (folder / "adapter_config.json").write_text(json.dumps(config))


def over_another_base(folder: Path, adapter: Path) -> None:
    over_no_base(folder, adapter)
    config = json.loads((folder / "adapter_config.json").read_text())
    other = make_base(folder / "other", width=64)
    config["base_model_name_or_path"] = str(other)
    (folder / "adapter_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (empty, r"holds no model \(found notes\.txt\); expected adapter_config\.json"),
        (without_weights, "does not go onto"),
        (with_broken_weights, "does not go onto"),
        (over_no_base, "/no/such/base: no such folder"),
        (over_another_base, "does not go onto"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(
    adapter: Path, tmp_path: Path, spoil: Any, message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    spoil(folder, adapter)
    with pytest.raises(UnusableInput, match=message) as error:
        AdapterPredictor(tmp_path, folder, device="cpu").load()
    assert "\n" not in str(error.value)


def test_a_base_without_a_chat_template_is_refused_when_it_is_asked(
    tmp_path: Path, items: list[CallerItem]
) -> None:
    bare = make_base(tmp_path / "bare", template=None)
    with pytest.raises(CannotPredict, match="no chat template"):
        AdapterPredictor(tmp_path, bare, device="cpu").predict(
            [PredictionRequest("i", "Find it.", items[0].tools)]
        )


def test_a_name_is_found_by_its_beginning(tmp_path: Path) -> None:
    for name in ("abc1" * 16, "abc2" * 16):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(json.dumps({"role": "caller", "name": name}))
    assert resolve_model(tmp_path, "abc1") == "abc1" * 16
    assert resolve_model(tmp_path, str(tmp_path)) == tmp_path
    with pytest.raises(CannotPredict, match="2 of 2 callers"):
        resolve_model(tmp_path, "abc")
    with pytest.raises(CannotPredict, match=r"known: general, abc1.*endpoint:ROLE_or_MODEL"):
        resolve_model(tmp_path, "gpt")
    with pytest.raises(CannotPredict, match="0 of 0 sidecars"):
        resolve_model(tmp_path, "general", "sidecar")


@pytest.mark.parametrize("torn", ['{"role": "call', "[]", ""])
def test_a_torn_card_is_named_where_it_is_asked_for_and_keeps_no_other_back(
    torn: str, tmp_path: Path
) -> None:
    for name, text in (("abc1", '{"role": "caller"}'), ("abd2", torn)):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.json").write_text(text)
    assert resolve_model(tmp_path, "abc") == "abc1"
    with pytest.raises(CannotPredict, match=r"abd2.model\.json is no card .*copy the model"):
        resolve_model(tmp_path, "abd2")
