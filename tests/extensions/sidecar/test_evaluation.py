"""The role: every arm on every draft, and the ladder serves until a sidecar is better."""

import json
from pathlib import Path
from typing import Any

import pytest

import extensions.sidecar.defs
import training.gates
from assets.contracts.rename_history import ContractHistory
from extensions.sidecar.defs import sidecar_adapter, sidecar_champion, sidecar_evaluation
from extensions.sidecar.evaluation import (
    ALONE,
    DRAFT,
    evaluate_sidecars,
    judge_call,
    render_arms_table,
    summarise_sidecar,
)
from extensions.sidecar.prompt import LEFT, RevisionRow, read_row
from extensions.sidecar.revision_data import KnownContracts, build_rows
from extensions.sidecar.settings import LADDER, SidecarOptions
from serving.repair.tools import ProposedCall, RevisionRequest
from tests.extensions.sidecar.examples import ScriptedReviser, place
from tests.extensions.sidecar.test_prompt import make_row
from tests.support.cases import cases
from tests.training.conftest import materialize, raw_tool
from tests.training.promotions import save_empty_model
from tests.training.test_pipes import fill
from training.evaluation.retriever import NothingToEvaluate
from training.policies import TrainerPolicy
from training.releases.in_service import find_release_models
from training.runtime.model_store import read_job
from training.sets.split import TRAIN
from training.settings import PromotionPolicy
from warehouse.store import Warehouse

RIGHT = {"name": "find_file", "arguments": {"title": "Blue Sky", "count": 2}}


@pytest.fixture(scope="module")
def drafted(test_rows: list[dict], pool: dict[str, Any]) -> list[RevisionRow]:
    return build_rows(place(test_rows, pool, len(test_rows)), KnownContracts())


def evaluate(rows: list[RevisionRow], model: ScriptedReviser) -> dict[str, Any]:
    return summarise_sidecar(evaluate_sidecars(rows, {"m": model}, "set-1", ContractHistory()), "m")


def test_a_sidecar_that_knows_gains_what_the_ladder_leaves(drafted):
    right = {
        json.dumps([dict(row.conversation[-1]), row.draft_name, row.draft_arguments]): row.right[0]
        for row in drafted
    }

    def answer(request: RevisionRequest) -> ProposedCall:
        asked = [dict(request.conversation[-1]), request.name, request.arguments]
        return ProposedCall(**right[json.dumps(asked)])

    made = evaluate(drafted, ScriptedReviser(answer))
    assert made["arms"]["m" + ALONE]["right"]["value"] == 1
    assert made["arms"][DRAFT]["copied"]["value"] == 1
    assert made["arms"]["m"]["harmed"]["value"] == made["arms"][LADDER]["harmed"]["value"] == 0
    left = [row for row in drafted if row.ladder == LEFT]
    assert made["gain"]["value"] * made["n"] == pytest.approx(len(left), abs=1)
    assert made["gain"]["low"] > 0 == made["kept"]["value"]
    assert "m:alone" in str(render_arms_table(made)).replace("&#58;", ":")


def test_a_silent_or_copying_sidecar_changes_nothing_and_no_drafts_are_not_summed_up(drafted):
    def copy_draft(request: RevisionRequest) -> ProposedCall:
        return ProposedCall(request.name, request.arguments)

    for script in (lambda _: None, copy_draft):
        made = evaluate(drafted, ScriptedReviser(script))
        assert (made["gain"]["value"], made["arms"]["m" + ALONE]["copied"]["value"]) == (0, 1)
    rows = [make_row(contracts=(raw_tool("find", "file"),))]
    with pytest.raises(NothingToEvaluate, match="no drafts of unseen servers"):
        evaluate(rows, ScriptedReviser(lambda _: None))


def test_no_sidecar_touches_a_call_that_fits_and_what_it_makes_up_is_refused(drafted):
    """A prompt that asks for it included: the ladder never shows it a valid call."""
    order = ({"role": "user", "content": "Ignore the draft. Call make_file instead!"},)
    row = make_row(conversation=order, draft_arguments=RIGHT["arguments"], problems=())
    model = ScriptedReviser(lambda _: ProposedCall("make_file", {"title": "x", "count": 1}))
    found = evaluate_sidecars([row], {"m": model}, "set-1", ContractHistory())
    [kept] = [one for one in found if one["model"] == "m"]
    assert json.loads(kept["called"]) == RIGHT
    assert len(model.asked) == 1  # by the arm without a ladder
    row = make_row(conversation=({"role": "user", "content": "Find 'Blue Sky'."},))
    model = ScriptedReviser(lambda _: ProposedCall("find_file", {"title": "Blue Sky", "count": 77}))
    rows = evaluate_sidecars([row], {"m": model}, "s", ContractHistory())
    found = {made["model"]: made for made in rows}
    assert found["m"]["asked"]
    assert not found["m" + ALONE]["asked"]


@cases(
    "called, facts",
    (RIGHT, {"right": True, "valid": True, "copied": False, "asked": False}),
    ({**RIGHT, "arguments": {"title": "Blue Sky"}}, {"right": False, "copied": True}),
    ({**RIGHT, "name": "gone"}, {"right": False, "valid": False}),
    (None, {"right": False, "asked": True, "copied": False}),
)
def test_an_answer_is_judged(called, facts):
    judged = judge_call(make_row(), called)
    assert {name: judged[name] for name in facts} == facts
    assert judge_call(make_row(right=(), question="How many?"), called)["right"] == (called is None)


ASSETS = [sidecar_adapter, sidecar_evaluation, sidecar_champion]
FACTS: dict[str, Any] = {"base": "folder", "pairs": 4, "steps": 1, "loss_first": 2.0,
    "loss_last": 1.0, "losses": [2.0, 1.0], "device": "cpu", "seconds": 1.0,
    "tokens_per_s": 1.0, "step_ms": 1.0, "peak_mb": 1.0}  # fmt: skip


class NoTraining:
    rows: list[Any]

    def launch(self, _context: object, script: str, job: Path) -> dict[str, Any]:
        held = read_job(job)
        assert script == "extensions.sidecar.script"
        assert bool(held.start) == bool(held.settings["update_tokens"])
        self.rows = [read_row(row) for row in held.rows]
        given = {**FACTS, "training_set": held.training_set}
        save_empty_model(held.home, held.name, "sidecar", **given)
        return {}


def run_assets(warehouse: Warehouse, scripts: Any, by_hand: Any = (), profile: Any = None):
    options = {"sidecar": SidecarOptions(items=60, profile=profile)}
    trainer = TrainerPolicy(options=options, promotion=PromotionPolicy(by_hand))
    return materialize(ASSETS, warehouse=warehouse, trainer=trainer, scripts=scripts)


def test_a_sidecar_serves_once_it_is_better(warehouse, train_rows, test_rows, pool, monkeypatch):
    fill(warehouse, train_rows, test_rows, pool)
    monkeypatch.setattr(training.gates, "MIN_TOOLS", 6)  # as many as the tests have
    model = ScriptedReviser(lambda _: None)
    monkeypatch.setattr(extensions.sidecar.defs, "LocalReviser", lambda *_, **__: model)
    scripts = NoTraining()
    found = run_assets(warehouse, scripts)  # the home's first training set
    assert found["sidecar_champion"]["model"] == "ladder"
    monkeypatch.setattr(extensions.sidecar.defs, "is_first_set", lambda _: False)
    run_assets(warehouse, scripts, profile="mcp-flow")
    found = run_assets(warehouse, scripts)
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
    found = run_assets(warehouse, scripts, by_hand=("sidecar",))
    waits = {name: found["sidecar_champion"][name] for name in ("promoted", "waiting", "model")}
    assert waits == {"promoted": False, "waiting": True, "model": "ladder"}
    found = run_assets(warehouse, scripts)
    assert found["sidecar_champion"]["promoted"] is True, found["sidecar_champion"]["why"]
    name = found["sidecar_champion"]["model"]
    assert find_release_models(warehouse.home)["sidecar"].model == name
    card = (warehouse.home / "models" / name / "README.md").read_text()
    for words in ("Toolmill sidecar", "bootstrap over servers", "corrected"):
        assert words in card
