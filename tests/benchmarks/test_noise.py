"""The benchmark of noisy endpoints: faults, tasks, logs, and how an order is valued."""

from random import Random

import numpy as np
import pytest

from benchmarks.outcomes.noise import build, play, proxy
from benchmarks.outcomes.noise.endpoints import ToolEndpoint, load_sources
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, draw_tasks, load_intents
from benchmarks.outcomes.noise.table import NO_CALL, OutcomeTable, TableCall, TaskFacts
from tests.support.cases import cases

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "the path"}},
    "required": ["path"],
}
CONTRACT = {"name": "read_text_file", "description": "Read a file", "inputSchema": SCHEMA}


def make_endpoint(server: str, direct: bool = True) -> ToolEndpoint:
    source = "npm:@modelcontextprotocol/server-filesystem"
    return ToolEndpoint(server, CONTRACT["name"], source, CONTRACT["name"], CONTRACT, direct=direct)


@pytest.fixture
def stage() -> play.NoiseStage:
    """The first endpoint fails, the others work; the retriever prefers the first."""
    endpoints = {
        endpoint.id: endpoint for endpoint in (make_endpoint(f"s{at}", at == 1) for at in (1, 2, 3))
    }
    ids = tuple(endpoints)
    tasks, outcomes = [], {}
    for at in range(8):
        split = TRAIN if at < 6 else HELD_OUT
        task = TaskFacts(f"t{at}", split, "read", "files", "w", 1, f"read {at}", ids, ids[:1])
        tasks.append(task)
        for name, success in zip(ids, (False, True, True), strict=True):
            outcomes[task.id, name] = TableCall(success, "ok", 0.1, "an answer")
    vectors = np.eye(3, 4, dtype=np.float32)
    queries = np.tile(np.array([0.8, 0.5, 0.33, 0], np.float32), (8, 1))
    return play.NoiseStage(OutcomeTable(tasks, endpoints, outcomes), queries, vectors)


def test_each_fault_is_as_frequent_a_fifth_has_none_and_parameters_keep_their_names():
    made = build.paraphrase_contract(CONTRACT, "load", Random(1))
    assert made["name"] == "load"
    assert made["inputSchema"]["properties"] == {"path": {"type": "string"}}
    real = [make_endpoint(f"srv-{at}") for at in range(20)]
    made = build.make_variants(real, 75, 1)
    faults = [variant.fault for variant in made]
    assert {name: faults.count(name) for name in proxy.FAULTS} == dict.fromkeys(proxy.FAULTS, 10)
    assert faults.count(None) == 15
    assert len({variant.id for variant in made}) == 75
    assert build.make_variants(real, 75, 1) == made != build.make_variants(real, 75, 2)


def test_every_intent_is_checked_has_wordings_for_held_out_tasks_and_other_tasks_by_seed():
    worlds = {source.world for source in load_sources()}
    for intent in load_intents():
        assert intent.changes or intent.answer, intent.name
        assert intent.requests, intent.name
        assert intent.held_out, intent.name
        assert not {*intent.requests} & {*intent.held_out}, intent.name
        assert intent.world in worlds, intent.name
    intents = [one for one in load_intents() if one.world in ("office-folder", "team-memory")]
    train = draw_tasks(intents, 60, TRAIN, (1, 2))
    assert train == draw_tasks(intents, 60, TRAIN, (1, 2))
    assert len({task.id for task in train}) == 60
    held_out = draw_tasks(intents, 30, HELD_OUT, (3,))
    assert not {task.query for task in held_out} & {task.query for task in train}


@cases("fault, rate", *proxy.RATES.items(), (None, 0.0))
def test_a_fault_strikes_as_often_as_it_says(fault, rate):
    rng = Random(1)
    assert sum(proxy.is_hit(fault, rng) for _ in range(2000)) / 2000 == pytest.approx(
        rate, abs=0.04
    )


def test_a_truncated_answer_is_cut_and_another_unit_changes_numbers_alone():
    assert proxy.change_answer(proxy.TRUNCATED, "x" * 200, Random(1)) == "x" * proxy.CUT
    changed = proxy.change_answer(proxy.UNIT, "price: 12.5 on 2026-01-02 in /a/7", Random(1))
    assert "2026-01-02" in changed
    assert "/a/7" in changed
    assert "12.5 " not in changed
    sent = {"quantity": 3, "rows": [[2]], "name": "3", "force": True}
    arguments = proxy.change_arguments(proxy.UNIT, sent, Random(1))
    assert arguments["quantity"] in (30, 300, 3000)
    assert arguments["rows"] != [[2]]
    assert (arguments["name"], arguments["force"], sent["quantity"]) == ("3", True, 3)


@cases("actor, expected", ("top", 0.0), ("by rank", 0.30 / (0.55 + 0.30)))
def test_the_actor_takes_the_first_or_overrides_by_rank(stage, actor, expected):
    tasks = stage.list_tasks(HELD_OUT)
    orders = play.order_by_retriever(stage, tasks)
    assert play.value_orders(stage, tasks, orders, actor) == pytest.approx([expected] * 2)


def test_the_oracle_knows_the_true_rates_and_a_log_has_one_outcome_a_task_by_its_seed(stage):
    tasks = stage.list_tasks(HELD_OUT)
    assert play.value_orders(stage, tasks, play.order_by_oracle(stage, tasks), "top").tolist() == [
        1,
        1,
    ]
    assert [order.tolist() for order in play.order_curated(stage, tasks)] == [[0], [0]]
    train = stage.list_tasks(TRAIN)
    log = play.draw_log(stage, train, 1)
    assert [one.task for one in log] == [task.id for task in train]
    assert [one.place for one in log] == [one.place for one in play.draw_log(stage, train, 1)]
    assert all(one.success == (one.place > 0) for one in log)
    times = [one.question.at for one in log]
    assert times == sorted({*times})


def test_an_actor_passes_over_tools_that_it_cannot_call_unless_all_are_such(stage):
    task = stage.list_tasks(HELD_OUT)[0]
    first, second, third = stage.table.endpoints
    for name in (first, second):
        stage.table.outcomes[task.id, name] = TableCall(False, NO_CALL)
    assert stage.ask(task).candidates.tolist() == [2]
    stage.table.outcomes[task.id, third] = TableCall(False, NO_CALL)
    assert stage.ask(task).candidates.tolist() == [0, 1, 2]
