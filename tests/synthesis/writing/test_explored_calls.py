"""Requests written from calls that worked: their values are stated, and they move the plan."""

import json
from typing import Any

from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import EXPLORATIONS, NO_TOOL, SINGLE
from assets.synthesis.writing.explored_calls import add_explored, read_explored
from assets.synthesis.writing.plan import compose_rows
from assets.synthesis.writing.units import WritingUnit, plan_units
from tests.synthesis.contracts import READ_FILE, snapshot_rows
from tests.synthesis.scripted import offline_llm
from warehouse.store import Warehouse

[ROW] = snapshot_rows([READ_FILE])
KEY = (ROW["server_id"], ROW["tool"], ROW["contract_digest"])
POLICY = SynthesisPolicy(evolve_share=0.0)


def explore(warehouse: Warehouse, *calls: tuple[dict[str, Any], dict[str, str], str]) -> None:
    rows = [
        {
            "exploration_id": f"o1:{number}",
            **{name: ROW[name] for name in ("server_id", "tool", "contract_digest")},
            "arguments": json.dumps(arguments),
            "sources": json.dumps(sources),
            "outcome": outcome,
        }
        for number, (arguments, sources, outcome) in enumerate(calls)
    ]
    tables = warehouse.tables
    tables.promote(tables.stage(EXPLORATIONS, EXPLORATIONS.frame(rows), "a"), "test", [])


def test_useful_calls_are_read_those_with_real_values_first(tmp_path) -> None:
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    explore(
        warehouse,
        ({"path": "made up"}, {"path": "invented"}, "useful"),
        ({"path": "/data/plan.md"}, {"path": "world"}, "useful"),
        ({"path": "/gone"}, {"path": "world"}, "tool_error"),
    )
    explored = read_explored(warehouse.tables, "a")
    assert explored == {KEY: [{"path": "/data/plan.md"}, {"path": "made up"}]}


def test_requests_state_the_values_of_a_call_that_worked(ledger) -> None:
    unit = WritingUnit(SINGLE, (ROW,), explored=({"path": "/data/plan.md"},))
    llm = offline_llm(ledger)
    rows = compose_rows([unit], llm, POLICY)
    assert len(rows) == POLICY.pairs_per_tool
    for row in rows:
        assert json.loads(str(row["arguments"])) == {"path": "/data/plan.md"}
        assert "/data/plan.md" in str(row["instruction"])


def test_only_single_calls_of_the_same_contract_take_them_and_their_plan_moves(ledger) -> None:
    units = [WritingUnit(SINGLE, (ROW,)), WritingUnit(NO_TOOL, (ROW,))]
    explored = {KEY: [{"path": "/data/plan.md"}]}
    single, no_tool = add_explored(units, explored)
    assert (single.explored, no_tool.explored) == (({"path": "/data/plan.md"},), ())
    others = {(KEY[0], KEY[1], "c1:other"): [{"path": "/data/plan.md"}]}
    assert add_explored(units, others) == units
    llm = offline_llm(ledger)
    before, after = (plan_units([each], llm, POLICY) for each in (units[0], single))
    assert before.keys() == after.keys()
    assert before != after
