"""A sidecar is trained from a job; a local model and an endpoint revise drafts."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from extensions.sidecar.predictor import EndpointReviser, LocalReviser
from extensions.sidecar.prompt import make_revision_request
from extensions.sidecar.revision_data import KnownContracts, build_rows, choose_rows
from extensions.sidecar.settings import (
    SMALL_GRPO,
    GrpoOptions,
    GrpoSettings,
    SidecarOptions,
    get_sidecar_profile,
)
from extensions.sidecar.train import train_sidecar
from serving.repair.ladder import repair_draft
from serving.repair.tools import ProposedCall
from tests.extensions.sidecar.examples import place
from tests.extensions.sidecar.test_prompt import FIND, MAKE, TOOLS, TURNS, ask, make_row
from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.training.evaluation.test_predictors import called, predictor
from tests.training.small_base import make_base
from training.adapter_table import check_adapter_rules, make_adapter_row
from training.caller.smollm2 import SMOLLM2
from training.evaluation.predictor import CannotPredict
from training.runtime.model_store import TrainingFailed, get_model_folder, read_job, write_job
from warehouse.store import Warehouse

SETTINGS = asdict(replace(get_sidecar_profile(SMOLLM2), threads=1, batch=4))


def test_the_loss_falls_and_the_card_says_how(tmp_path, train_rows, pool):
    rows = choose_rows(build_rows(place(train_rows, pool, 24), KnownContracts()), 24)
    base = str(make_base(tmp_path / "base"))
    settings = {**SETTINGS, "learning_rate": 5e-3}
    _, path = write_job(tmp_path, "sidecar", base, "set-1", settings, list(map(vars, rows)))
    made = train_sidecar(read_job(path), lambda _: None)
    assert made["loss_last"] < made["loss_first"]
    assert (made["role"], made["base"], made["algorithm"]) == ("sidecar", base, "sft")
    assert made["pairs"] == len(rows) == made["lessons"]["rows"]


@pytest.mark.slow
@cases("algorithm", "sft+grpo", "grpo")
def test_rewards_come_after_examples_or_alone(algorithm, small_caller, tmp_path, train_rows, pool):
    pytest.importorskip("trl")
    few = GrpoOptions(steps=2, group=2, prompts=2, pass_rows=4, max_new=8)
    settings = asdict(SidecarOptions(algorithm=algorithm, grpo=few).resolve(threads=1, batch=4))
    rows = choose_rows(build_rows(place(train_rows, pool, 12), KnownContracts()), 12)
    _, path = write_job(
        tmp_path, "sidecar", str(small_caller), "set-1", settings, list(map(vars, rows))
    )
    made = train_sidecar(read_job(path), lambda _: None)
    assert made["algorithm"] == algorithm
    assert make_adapter_row(made)["steps"] == (2 if algorithm == "grpo" else 3)
    rewarded = made["grpo"]
    assert len(rewarded["curve"]) == 2
    assert {"corrected", "copied", "harmed"} <= rewarded["before"].keys()
    assert check_adapter_rules(tmp_path, made)[2].passed
    assert not (get_model_folder(tmp_path, made["name"]) / "ref").exists()


def test_what_is_not_used_names_no_model():
    assert SidecarOptions(grpo=GrpoOptions(steps=3)).resolve().grpo is None
    small = SidecarOptions(algorithm="sft+grpo", grpo=GrpoOptions(steps=3)).resolve().grpo
    assert small == replace(SMALL_GRPO, steps=3)
    real = SidecarOptions(base="Qwen/Qwen3-4B@" + "0" * 40, algorithm="grpo").resolve()
    assert real.grpo == GrpoSettings()


def test_a_job_that_holds_no_rows_of_ours_is_named(small_caller, tmp_path):
    _, path = write_job(
        tmp_path, "sidecar", str(small_caller), "set-1", SETTINGS, [{"pair_id": "a"}]
    )
    with pytest.raises(TrainingFailed, match="make the data again"):
        train_sidecar(read_job(path), lambda _: None)


def test_a_real_base_has_the_callers_profile():
    real = SidecarOptions(base="Qwen/Qwen3-4B@" + "0" * 40).resolve(seed=3)
    assert (real.profile, real.rows, real.context, real.seed) == ("mcp-flow", 20_000, 8192, 3)
    small = SidecarOptions(rows=10).resolve()
    assert (small.profile, small.rows, small.algorithm) == ("smollm2", 10, "sft")


WANTED = {"title": "Blue Sky", "count": 2}


def test_a_local_model_answers_many_as_one_by_one(small_caller, tmp_path):
    model = LocalReviser(tmp_path, small_caller, device="cpu", constrained=True)
    requests = [make_revision_request(make_row()), ask(), ask("drop_song", TOOLS[:3])]
    together = model.revise_requests(requests)
    assert together == [model(request) for request in requests]
    assert any(isinstance(one, ProposedCall) for one in together)


def test_a_local_model_leaves_what_its_context_cannot_hold(small_caller, tmp_path):
    model = LocalReviser(tmp_path, small_caller, device="cpu")
    long = make_row(draft_arguments={"title": "word " * 20_000})
    assert model.revise_requests([make_revision_request(long)]) == [None]


def test_a_model_that_is_not_there_is_named_and_the_ladder_goes_on(tmp_path):
    model = LocalReviser(tmp_path, "no-such-model", device="cpu")
    with pytest.raises(CannotPredict, match="no finished model"):
        model.load()
    draft = {"name": "find_file", "arguments": {"title": "Blue Sky"}}
    report = repair_draft(draft, [FIND, MAKE], conversation="Find 'Blue Sky'.", revise=model)
    assert report.outcome == "abstained"
    [rung] = [one for one in report.rungs if one.rung == "revise"]
    assert "CannotPredict" in rung.why


def test_an_endpoint_revises_with_the_words_that_a_sidecar_learns(tmp_path):
    def answer(body: dict[str, Any], number: int) -> Say:
        assert "What is wrong with it" in body["messages"][-1]["content"]
        assert {tool["function"]["name"] for tool in body["tools"]} >= {"find_file"}
        if number == 1:
            return called(("find_file", json.dumps(WANTED)))
        return Say("How many of them?") if number == 2 else Say("", status=400)

    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)
    draft = {"name": "find_file", "arguments": {"title": "Blue Sky"}}
    talks = ("Find 2 or 3 of 'Blue Sky', or 2.", "Find 'Blue Sky'.", "Look for 'Blue Sky'.")
    with openai_endpoint(answer) as endpoint:
        model = EndpointReviser(predictor(endpoint, warehouse, attempts=1))
        reports = [
            repair_draft(draft, [FIND, MAKE], conversation=talk, revise=model) for talk in talks
        ]
    assert (reports[0].outcome, reports[0].arguments) == ("repaired", WANTED)
    assert reports[1].reason is not None
    assert reports[1].reason.question == "How many of them?"
    assert reports[2].outcome == "abstained"


def test_turns_and_candidates_reach_the_endpoint(tmp_path):
    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)
    with openai_endpoint([called(("find_invoice", json.dumps(WANTED)))]) as endpoint:
        model = EndpointReviser(predictor(endpoint, warehouse))
        assert model.revise_requests([ask()]) == [ProposedCall("find_invoice", WANTED)]
    [body] = endpoint.requests
    assert len(body["tools"]) == len(TOOLS)
    assert all(one["content"] in body["messages"][-1]["content"] for one in TURNS)
