"""The role's assets: data, adapter, evaluation, champion; the ladder serves until one is better."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import extensions.sidecar.defs
import training.gates
from extensions.sidecar.defs import sidecar_adapter, sidecar_champion, sidecar_evaluation
from extensions.sidecar.prompt import read_row
from extensions.sidecar.settings import SidecarOptions
from serving.repair.tools import ProposedCall, RevisionRequest
from tests.extensions.sidecar.scripted import ScriptedReviser
from tests.training.promotions import save_empty_model
from tests.training.test_defs import fill
from training.policies import TrainerPolicy
from training.releases.in_service import find_release_models
from training.runtime.model_store import read_job
from training.sets.split import TRAIN
from training.settings import PromotionPolicy
from warehouse.store import Warehouse

ASSETS = [sidecar_adapter, sidecar_evaluation, sidecar_champion]
FACTS: dict[str, Any] = {"base": "folder", "pairs": 4, "steps": 1, "loss_first": 2.0,
    "loss_last": 1.0, "losses": [2.0, 1.0], "device": "cpu", "seconds": 1.0,
    "tokens_per_s": 1.0, "step_ms": 1.0, "peak_mb": 1.0}  # fmt: skip


class NoTraining:
    """Saves a whole model without training one."""

    rows: list[Any]

    def launch(self, _context: object, script: str, job: Path) -> dict[str, Any]:
        held = read_job(job)
        assert script == "extensions.sidecar.script"
        self.rows = [read_row(row) for row in held.rows]
        given = {**FACTS, "training_set": held.training_set}
        save_empty_model(held.home, held.name, "sidecar", **given)
        return {}


def materialize(
    warehouse: Warehouse, scripts: NoTraining, by_hand: tuple[Any, ...] = ()
) -> dict[str, dict[str, Any]]:
    trainer = TrainerPolicy(
        options={"sidecar": SidecarOptions(items=60)}, promotion=PromotionPolicy(by_hand)
    )
    resources = {"warehouse": warehouse, "trainer": trainer, "scripts": scripts}
    made = dg.materialize(ASSETS, resources=resources)
    return {
        event.asset_key.to_user_string(): {  # type: ignore[union-attr]
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in made.get_asset_materialization_events()
    }


def test_the_ladder_serves_until_a_sidecar_is_right_more_often(
    warehouse: Warehouse,
    train_rows: list[dict],
    test_rows: list[dict],
    pool: dict[str, dict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(warehouse, train_rows, test_rows, pool)
    monkeypatch.setattr(training.gates, "MIN_TOOLS", 6)  # as many as the tests have
    model = ScriptedReviser(lambda _: None)
    monkeypatch.setattr(extensions.sidecar.defs, "LocalReviser", lambda *_, **__: model)
    scripts = NoTraining()
    found = materialize(warehouse, scripts)  # the home's first training set
    assert found["sidecar_champion"]["model"] == "ladder"
    monkeypatch.setattr(extensions.sidecar.defs, "is_first_set", lambda _: False)
    found = materialize(warehouse, scripts)
    assert {row.split for row in scripts.rows} == {TRAIN}
    assert found["sidecar_evaluation"]["copied"] <= 1
    assert found["sidecar_champion"]["model"] == "ladder"
    assert "gain: +0.000" in found["sidecar_champion"]["why"]
    assert find_release_models(warehouse.home)["sidecar"].model == "ladder"

    wanted = {str(row["instruction"]): row for row in test_rows}

    def know(request: RevisionRequest) -> ProposedCall:
        row = wanted[str(request.conversation[0]["content"])]
        return ProposedCall(row["tool"], json.loads(row["arguments"]))

    model.script = know
    found = materialize(warehouse, scripts, by_hand=("sidecar",))
    waits = {name: found["sidecar_champion"][name] for name in ("promoted", "waiting", "model")}
    assert waits == {"promoted": False, "waiting": True, "model": "ladder"}
    found = materialize(warehouse, scripts)
    assert found["sidecar_champion"]["promoted"] is True, found["sidecar_champion"]["why"]
    name = found["sidecar_champion"]["model"]
    assert find_release_models(warehouse.home)["sidecar"].model == name
    card = (warehouse.home / "models" / name / "README.md").read_text()
    assert "Toolmill sidecar" in card
    assert "bootstrap over servers" in card
    assert "corrected" in card
