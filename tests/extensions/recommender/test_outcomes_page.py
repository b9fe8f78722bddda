"""The asset `outcomes_report` over a home with calls, and over one without any."""

import json
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.table import RELIABILITY
from assets.vectors.confusable_table import CONFUSABLES
from extensions.recommender.defs import outcomes_report
from extensions.recommender.evaluation import RERANKER_EVALUATION
from extensions.recommender.outcomes_page import gather_outcome_facts
from extensions.recommender.role import UNTRAINED_ORDER
from tests.outcomes.reliability.observing import CONTRACT, DAY, NOW, publish
from warehouse.store import Warehouse

# Server -> rate of its tool; the second tool fails under its new contract.
RATES = {"npm:files": 0.9, "npm:disk": 0.35}
OLD, NEW = "c1:" + "a" * 64, "c1:" + "b" * 64
MODEL = "d" * 64
POLICY = ReliabilityPolicy(per_day=1e6)


def make_call(number: int) -> dict[str, Any]:
    """Forty calls a tool over eight days; `npm:disk` works until its contract changes."""
    server, turned = list(RATES)[number % 2], number >= 40
    worked = server == "npm:files" or not turned
    named = {"id": f"c{number}", "call_id": f"k{number}", "token": f"client-{number % 7}"}
    digest = NEW if server == "npm:files" or turned else OLD
    about = {"tool_id": f"{server}::read", "contract_digest": digest, **named}
    ended = {"status": "ok"} if worked else {"status": "tool_error", "blame": "tool"}
    return {"at": NOW - 8 * DAY + number * DAY / 10, **about, **ended}


def fill_called_home(warehouse: Warehouse) -> None:
    read = {"tool": "read", "contract_digest": NEW}
    marked = {"marketplace": "registry", "contract": CONTRACT, "first_seen": "2026-01-01"}
    publish(warehouse, CLEAR, [{"server_id": server, **read, **marked} for server in RATES])
    day = str(datetime.fromtimestamp(NOW - 4 * DAY, UTC).date())
    change = {"server_id": "npm:disk", "tool": "read", "from_digest": OLD, "to_digest": NEW}
    publish(warehouse, CHANGES, [change | {"run_date": day, "fields": "[]", "cls": "breaking"}])
    alike = {"server_id": "npm:disk", **read, "cosine": 0.93, "kind": "confusable"}
    alike |= {"other_server_id": "npm:files", "other_tool": "read", "other_digest": "c1:b"}
    publish(warehouse, CONFUSABLES, [alike])
    counts = {"calls": 100, "failed": 10, "sources": 2, "failures": "{}", "carried": 0.0, "n": 100}
    rates = [
        {"server_id": server, **read, "current": True, "category": "files", **counts,
         "mean": rate, "low": rate - 0.05, "high": rate + 0.05, "prior": 0.7}
        for server, rate in RATES.items()
    ]  # fmt: skip
    publish(warehouse, RELIABILITY, rates)
    about = {"kind": "call", "server_id": "s", "tool_id": "s::t", "training_set": "h"}
    judged = [
        {**about, "item_id": f"call:{at}", "right": at % 2 == 0, "model": model, "score": score}
        for at in range(40)
        for model, score in ((MODEL, 0.9 - 0.8 * (at % 2)), (UNTRAINED_ORDER, 0.5))
    ]
    publish(warehouse, RERANKER_EVALUATION, judged)
    folder = warehouse.home / "outcomes"
    folder.mkdir(parents=True)
    for call in map(make_call, range(80)):
        name = str(datetime.fromtimestamp(call["at"], UTC).date())
        with (folder / f"{name}.jsonl").open("a") as log:
            log.write(json.dumps(call) + "\n")


def materialize(warehouse: Warehouse) -> tuple[dict[str, Any], str]:
    resources = {"warehouse": warehouse, "reliability_policy": POLICY}
    result = dg.materialize([outcomes_report], resources=resources)
    [event] = result.asset_materializations_for_node("outcomes_report")
    version = (event.tags or {})["dagster/data_version"]
    return {name: value.value for name, value in event.metadata.items()}, version


def test_every_part_says_why_it_is_empty_until_there_are_calls_and_has_its_figures_then(warehouse):
    shown, _ = materialize(warehouse)
    parts = shown["report"].split("\n## ")[1:]
    assert len(parts) == 4
    assert all("Nothing to show yet because " in part for part in parts)
    fill_called_home(warehouse)
    shown, version = materialize(warehouse)
    assert "Nothing to show" not in shown["report"]
    assert (warehouse.home / "reports/outcomes/report.md").read_text().strip() == shown["report"]
    assert shown["calls"] == pytest.approx(80)
    facts = gather_outcome_facts(warehouse, POLICY)
    assert len(facts["days"]["all"]) == 9
    assert [fact["model"] for fact in facts["calibration"]] == [MODEL]
    assert facts["calibration"][0]["brier"] < facts["calibration"][0]["constant"]
    [pair] = facts["alike"]["shown"]
    assert (pair["better"]["tool_id"], pair["apart"]) == ("npm:files::read", True)
    [changed] = facts["changes"]["shown"]
    assert (changed["tool_id"], changed["verdict"]) == ("npm:disk::read", -1)
    assert (changed["before"]["value"], changed["after"]["value"]) == (1.0, 0.0)
    assert materialize(warehouse)[1] == version
