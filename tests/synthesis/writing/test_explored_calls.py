"""Requests written from calls that worked: their values are stated, and they move the plan."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.quarantined_tools import key_contract as key
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import (
    CLARIFY,
    CONTRACT,
    EXPLORATIONS,
    EXPLORED,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    read_goldens,
)
from assets.synthesis.writing.explored_calls import (
    ExploredCall,
    ExploredTools,
    add_explored,
    read_explored,
)
from assets.synthesis.writing.plan import compose_rows
from assets.synthesis.writing.units import WritingUnit, plan_units
from tests.synthesis.contracts import READ_FILE, snapshot_rows
from tests.synthesis.scripted import CLOSE_TICKET, FIND_TICKET, offline_llm
from warehouse.store import Warehouse

[ROW] = snapshot_rows([READ_FILE])
KEY = (ROW["server_id"], ROW["tool"], ROW["contract_digest"])
POLICY = SynthesisPolicy(evolve_share=0.0)


def explore(warehouse: Warehouse, *calls: tuple[dict[str, Any], dict[str, str], str]) -> None:
    own = {name: ROW[name] for name in ("server_id", "tool", "contract_digest")}
    rows = [
        {**own, "exploration_id": f"o1:{number}", "arguments": json.dumps(arguments),
         "sources": json.dumps(sources), "outcome": outcome}
        for number, (arguments, sources, outcome) in enumerate(calls)
    ]  # fmt: skip
    tables = warehouse.tables
    tables.promote(tables.stage(EXPLORATIONS, EXPLORATIONS.frame(rows), "a"), "test", [])


def test_useful_calls_are_read_those_with_real_values_first(tmp_path):
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    explore(
        warehouse,
        ({"path": "made up"}, {"path": "invented"}, "useful"),
        ({"path": "/data/plan.md"}, {"path": "world"}, "useful"),
        ({"path": "/gone"}, {"path": "world"}, "tool_error"),
    )
    explored = read_explored(warehouse.tables, "a")
    calls = [call.arguments for call in explored.list_calls(KEY)]
    assert calls == [{"path": "/data/plan.md"}, {"path": "made up"}]


def test_requests_state_the_values_of_a_call_that_worked(ledger):
    unit = WritingUnit(SINGLE, (ROW,), explored=({"path": "/data/plan.md"},))
    llm = offline_llm(ledger)
    rows = compose_rows([unit], llm, POLICY)
    assert len(rows) == POLICY.pairs_per_tool
    for row in rows:
        assert json.loads(str(row["arguments"])) == {"path": "/data/plan.md"}
        assert "/data/plan.md" in str(row["instruction"])


def test_only_single_calls_of_the_same_contract_take_them_and_their_plan_moves(ledger):
    units = [WritingUnit(SINGLE, (ROW,)), WritingUnit(NO_TOOL, (ROW,))]
    explored = ExploredTools([ExploredCall("o1:1", KEY, {"path": "/data/plan.md"})])
    single, no_tool = add_explored(units, explored, [ROW])
    assert (single.explored, no_tool.explored) == (({"path": "/data/plan.md"},), ())
    other = (KEY[0], KEY[1], "c1:other")
    others = ExploredTools([ExploredCall("o1:1", other, {"path": "/data/plan.md"})])
    assert add_explored(units, others) == units
    llm = offline_llm(ledger)
    before, after = (plan_units([each], llm, POLICY) for each in (units[0], single))
    assert before.keys() == after.keys()
    assert before != after


FIND, CLOSE = snapshot_rows([FIND_TICKET, CLOSE_TICKET])


SOUGHT = ExploredCall("o1:find", key(FIND), {"word": "printer"}, text='{"ticket_id": "T-88"}')
CLOSED = ExploredCall(
    "o1:close",
    key(CLOSE),
    {"ticket_id": "T-88"},
    {"ticket_id": "search_tickets"},
    {"ticket_id": ("o1:find", "ticket_id")},
    objection=({"ticket_id": "T-88x"}, "no ticket T-88x"),
)
DESK = ExploredTools([SOUGHT, CLOSED])


def write_one(ledger: Any, task: str, own: Any, explored: ExploredTools, *more: Any) -> Any:
    [unit] = add_explored([WritingUnit(task, (own,))], explored, [FIND, CLOSE, *more])
    [row] = compose_rows([unit], offline_llm(ledger), POLICY)
    return row


def test_a_sequence_takes_a_value_that_only_the_first_answer_tells(ledger):
    assert DESK.list_joined() == {key(CLOSE)[:2]}
    row = write_one(ledger, SEQUENTIAL, CLOSE, DESK)
    assert (row["status"], row["verdict"], row["basis"]) == ("ok", "accept", EXPLORED)
    assert "printer" in row["instruction"]
    assert "T-88" not in row["instruction"]
    assert row["simulated"] is False
    _, call, answer, last = json.loads(row["messages"])
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"word": "printer"}
    assert answer["content"] == SOUGHT.text
    assert json.loads(last["tool_calls"][0]["function"]["arguments"]) == {"ticket_id": "T-88"}
    assert [list(call.borrowed) for call in read_goldens(row)] == [[], ["ticket_id"]]


def test_a_tool_has_the_sequence_of_those_it_takes_from_with_the_call_that_makes_its_thing():
    [unit] = add_explored([WritingUnit(SEQUENTIAL, (FIND,))], DESK, [FIND, CLOSE])
    assert [row["tool"] for row in unit.rows] == ["search_tickets", "close_ticket"]
    alone = ExploredTools([replace(CLOSED, origins={})])
    pair = WritingUnit(SEQUENTIAL, (CLOSE, FIND))
    assert add_explored([pair], alone, [FIND, CLOSE]) == []
    # Of a server that was not explored its schemas have to do.
    assert add_explored([pair], ExploredTools(), [FIND, CLOSE]) == [pair]
    made = [call_of(1), call_of(2, 1, after="o1:1"), call_of(3, 2, after="o1:2")]
    assert [step for step, _ in steps_of(made, 3)] == ["o1:1", "o1:2", "o1:3"]
    assert steps_of(made[1:], 3) == steps_of(made[1:], 2) == []


def call_of(number: int, *sources: int, **more: Any) -> ExploredCall:
    """A call of tool `number` that takes parameter `p<n>` of each source n's answer."""
    return ExploredCall(
        f"o1:{number}",
        ("npm:x", f"t{number}", f"c1:{number}"),
        {f"p{n}": f"value-{n}" for n in sources},
        origins={f"p{n}": (f"o1:{n}", f"p{n}") for n in sources},
        **{"text": "told", **more},
    )


def steps_of(calls: list[ExploredCall], number: int) -> list[tuple[str, list[str]]]:
    tools = ExploredTools(calls)
    found = tools.find_sequence(("npm:x", f"t{number}", f"c1:{number}"))
    return [(step.call.id, sorted(step.borrowed)) for step in found]


def test_sequences_join_have_at_most_five_steps_and_a_cycle_of_edges_ends():
    joined = [call_of(1), call_of(2), call_of(3, 1, 2, text=None)]
    assert steps_of(joined, 3) == [("o1:1", []), ("o1:2", []), ("o1:3", ["p1", "p2"])]
    cycle = [call_of(1, 2), call_of(2, 1), call_of(3, 2)]
    assert steps_of(cycle, 3) == [("o1:1", []), ("o1:2", ["p1"]), ("o1:3", ["p2"])]
    assert steps_of([call_of(1, 1)], 1) == []
    assert steps_of([call_of(1, changes=True), call_of(2, 1)], 2) == []
    long = [call_of(1), *(call_of(n, n - 1) for n in range(2, 12))]
    steps = steps_of(long, 11)
    assert 2 <= len(steps) <= 5
    assert steps[-1][0] == "o1:11"


edges = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25)


@given(edges)
def test_whatever_the_edges_are_a_value_comes_from_an_earlier_step(pairs):
    calls = [call_of(n, *{source for target, source in pairs if target == n}) for n in range(8)]
    for n in range(8):
        tools = ExploredTools(calls)
        steps = tools.find_sequence(("npm:x", f"t{n}", f"c1:{n}"))
        assert len(steps) <= 5
        for at, step in enumerate(steps):
            earlier = {other.call.id for other in steps[:at]}
            assert {step.call.origins[p][0] for p in step.borrowed} <= earlier
        assert not steps or any(step.borrowed for step in steps)


def test_parallel_calls_both_worked(ledger):
    row = write_one(ledger, PARALLEL, FIND, DESK)
    assert (row["verdict"], row["basis"]) == ("accept", EXPLORED)
    assert [call.arguments for call in read_goldens(row)] == [SOUGHT.arguments, CLOSED.arguments]
    changing = ExploredTools([replace(SOUGHT, changes=True), replace(CLOSED, changes=True)])
    [unit] = add_explored([WritingUnit(PARALLEL, (FIND,))], changing, [FIND, CLOSE])
    assert unit.outline is None


def test_a_value_that_exists_is_withheld_and_asked_for(ledger):
    row = write_one(ledger, MISSING, CLOSE, DESK)
    assert (row["verdict"], row["basis"]) == ("accept", EXPLORED)
    assert "T-88" not in row["instruction"]


def test_a_question_names_two_that_fit(ledger):
    other = replace(CLOSED, id="o1:other", arguments={"ticket_id": "T-91"})
    row = write_one(ledger, CLARIFY, CLOSE, ExploredTools([SOUGHT, CLOSED, other]))
    assert (row["verdict"], row["basis"]) == ("accept", EXPLORED)
    question = json.loads(row["messages"])[1]["content"]
    assert "T-88" in question
    assert "T-91" in question
    # With one that fits there is nothing to choose: its schema has to do.
    assert write_one(ledger, CLARIFY, CLOSE, DESK)["basis"] == CONTRACT


def test_a_recovery_shows_the_objection_of_the_server(ledger):
    row = write_one(ledger, RECOVERY, CLOSE, DESK)
    assert (row["verdict"], row["basis"], row["simulated"]) == ("accept", EXPLORED, False)
    assert json.loads(row["messages"])[2]["content"] == "no ticket T-88x"
    assert [call.arguments for call in read_goldens(row)] == [CLOSED.arguments]
    silent = ExploredTools([replace(CLOSED, objection=None)])
    assert write_one(ledger, RECOVERY, CLOSE, silent)["simulated"] is True


def test_a_request_for_what_no_tool_at_hand_can_do(ledger):
    own = {**ROW, "server_id": "npm:asks-elsewhere-1"}
    row = write_one(ledger, NO_TOOL, own, DESK)
    assert (row["verdict"], row["basis"]) == ("accept", EXPLORED)
    assert "printer" in row["instruction"] or "T-88" in row["instruction"]
    assert json.loads(row["offered"]) == [ROW["contract_digest"]]
    # Whose words it rests on can be taken down.
    assert {FIND["contract_digest"], CLOSE["contract_digest"]} & set(json.loads(row["contracts"]))
