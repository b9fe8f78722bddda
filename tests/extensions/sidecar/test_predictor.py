"""A model on this machine and one behind an endpoint revise drafts for the ladder."""

import json
from pathlib import Path
from typing import Any

import pytest

from extensions.sidecar.predictor import EndpointReviser, LocalReviser
from extensions.sidecar.prompt import make_revision_request
from serving.repair.ladder import repair_draft
from serving.repair.tools import ProposedCall
from tests.extensions.sidecar.test_prompt import FIND, MAKE, make_row
from tests.extensions.sidecar.test_select import TOOLS, TURNS, ask
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.training.evaluation.predictors.test_endpoint import called, predictor
from training.evaluation.predictor import CannotPredict
from warehouse.store import Warehouse

WANTED = {"title": "Blue Sky", "count": 2}


def test_a_local_model_answers_many_as_one_by_one(small_caller: Path, tmp_path: Path) -> None:
    model = LocalReviser(tmp_path, small_caller, device="cpu", constrained=True)
    requests = [make_revision_request(make_row()), ask(), ask("drop_song", TOOLS[:3])]
    together = model.revise_requests(requests)
    assert together == [model(request) for request in requests]
    assert any(isinstance(one, ProposedCall) for one in together)


def test_a_local_model_leaves_what_its_context_cannot_hold(
    small_caller: Path, tmp_path: Path
) -> None:
    model = LocalReviser(tmp_path, small_caller, device="cpu")
    long = make_row(draft_arguments={"title": "word " * 20_000})
    assert model.revise_requests([make_revision_request(long)]) == [None]


def test_a_model_that_is_not_there_is_named_and_the_ladder_goes_on(tmp_path: Path) -> None:
    model = LocalReviser(tmp_path, "no-such-model", device="cpu")
    with pytest.raises(CannotPredict, match="no finished model"):
        model.load()
    draft = {"name": "find_file", "arguments": {"title": "Blue Sky"}}
    report = repair_draft(draft, [FIND, MAKE], conversation="Find 'Blue Sky'.", revise=model)
    assert report.outcome == "abstained"
    [rung] = [one for one in report.rungs if one.rung == "revise"]
    assert "CannotPredict" in rung.why


def test_an_endpoint_revises_with_the_words_that_a_sidecar_learns(tmp_path: Path) -> None:
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


def test_turns_and_candidates_reach_the_endpoint(tmp_path: Path) -> None:
    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)
    with openai_endpoint([called(("find_invoice", json.dumps(WANTED)))]) as endpoint:
        model = EndpointReviser(predictor(endpoint, warehouse))
        assert model.revise_requests([ask()]) == [ProposedCall("find_invoice", WANTED)]
    [body] = endpoint.requests
    assert len(body["tools"]) == len(TOOLS)
    assert all(one["content"] in body["messages"][-1]["content"] for one in TURNS)
