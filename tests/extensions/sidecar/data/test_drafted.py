"""Drafts of another model, through a real HTTP endpoint that follows a script."""

import json
from pathlib import Path
from typing import Any

from extensions.sidecar.prompt import UNTOUCHED
from extensions.sidecar.revision_data import collect_drafts
from tests.extensions.sidecar.examples import place
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.training.evaluation.predictors.test_endpoint import called, predictor
from warehouse.store import Warehouse


def test_each_first_call_is_a_draft_of_its_kind(
    train_rows: list[dict], pool: dict[str, Any], tmp_path: Path
) -> None:
    calls = place(train_rows, pool, 4)
    right = {call.good.name + json.dumps(call.good.arguments): call.good for call in calls}
    assert len(right) == 4

    def answer(body: dict[str, Any], _: int) -> Say:
        asked = json.dumps(body["messages"])
        at = next(n for n, one in enumerate(calls) if one.row["instruction"] in asked)
        good = calls[at].good
        if at == 0:
            return called((good.name, json.dumps(good.arguments)))
        if at == 1:
            return called((good.name, json.dumps({"title": "other"})))
        return Say("How many?") if at == 2 else Say("no", status=400)

    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)
    with openai_endpoint(answer) as endpoint:
        found = list(collect_drafts(calls, predictor(endpoint, warehouse)))
    assert [(one.call, one.kind, one.source) for one in found] == [
        (calls[0], UNTOUCHED, "drafted"),
        (calls[1], "missing_parameter", "drafted"),
    ]
    assert found[1].arguments == {"title": "other"}
