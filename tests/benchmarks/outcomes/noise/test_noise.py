"""A table of three endpoints, its variants, a proxy that makes noise, and the report."""

import asyncio
from random import Random
from typing import Any

import numpy as np
import pytest

from assets.servers.calls.result import CallResult
from benchmarks.outcomes.noise.build import (
    make_variants,
    paraphrase_contract,
    paraphrase_name,
    paraphrase_text,
)
from benchmarks.outcomes.noise.endpoints import (
    ToolEndpoint,
    list_real,
    load_sources,
)
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, draw_tasks, load_intents
from benchmarks.outcomes.noise.play import (
    NoiseStage,
    draw_log,
    order_by_oracle,
    order_by_retriever,
    order_curated,
    value_orders,
)
from benchmarks.outcomes.noise.proxy import (
    CUT,
    EMPTY,
    FAULTS,
    RANDOM,
    RATES,
    SLOW,
    STALE,
    TRUNCATED,
    UNIT,
    ProxyAnswer,
    ProxyPool,
    change_answer,
    change_arguments,
    is_hit,
)
from benchmarks.outcomes.noise.report import (
    describe_table,
    render_report,
    summarise_categories,
    summarise_values,
    value_fixed,
    value_methods,
)
from benchmarks.outcomes.noise.table import NO_CALL, OutcomeTable, TableCall, TaskFacts, load_table
from extensions.recommender.methods import SuccessPrior
from tests.support.cases import cases

SOURCE = "npm:@modelcontextprotocol/server-filesystem"


def make_contract(name: str, *parameters: str) -> dict[str, Any]:
    properties = {
        parameter: {"type": "string", "description": f"the {parameter}"} for parameter in parameters
    }
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": f"{name} of a file", "inputSchema": schema}


def make_endpoint(server: str, base: str = "read_text_file", **more: Any) -> ToolEndpoint:
    contract = make_contract(base, "path")
    return ToolEndpoint(server, base, SOURCE, base, contract, **more)


def make_stage() -> NoiseStage:
    """The first endpoint fails, the others work; the retriever prefers the first."""
    first = make_endpoint("srv-1")
    second, third = (make_endpoint(name, direct=False) for name in ("srv-2", "srv-3"))
    endpoints = {one.id: one for one in (first, second, third)}
    ids = tuple(endpoints)
    tasks, outcomes = [], {}
    for at in range(8):
        split = TRAIN if at < 6 else HELD_OUT
        task = TaskFacts(f"t{at}", split, "read", "files", "w", 1, f"read {at}", ids, (first.id,))
        tasks.append(task)
        for name, success in zip(ids, (False, True, True), strict=True):
            outcomes[task.id, name] = TableCall(success, "ok", 0.1, "an answer")
    vectors = np.eye(3, 4, dtype=np.float32)
    queries = np.tile(np.array([0.8, 0.5, 0.33, 0], np.float32), (8, 1))
    return NoiseStage(OutcomeTable(tasks, endpoints, outcomes), queries, vectors)


REAL = [make_endpoint(f"srv-{at}", "read_text_file") for at in range(20)]


def test_each_fault_is_as_frequent_and_a_fifth_has_none():
    made = make_variants(REAL, 75, 1)
    faults = [one.fault for one in made]
    assert {name: faults.count(name) for name in FAULTS} == dict.fromkeys(FAULTS, 10)
    assert faults.count(None) == 15
    assert len({one.id for one in made}) == 75
    assert not any(one.direct for one in made)


def test_variants_are_a_function_of_their_seed():
    assert make_variants(REAL, 10, 1) == make_variants(REAL, 10, 1) != make_variants(REAL, 10, 2)


def test_a_name_gets_other_words_and_loses_the_product():
    assert paraphrase_name("fast_read_file", Random(1)).endswith("_document")
    assert "fast" not in paraphrase_name("fast_read_file", Random(1))


def test_only_the_first_sentence_is_said_again():
    text = paraphrase_text("read_file", "Read a file. DEPRECATED: use another.", Random(1))
    assert "document" in text
    assert "DEPRECATED" not in text


def test_a_description_without_latin_words_is_told_by_the_name():
    assert "document" in paraphrase_text("read_file", "読み込み", Random(1))


def test_parameters_keep_their_names_and_lose_their_words():
    made = paraphrase_contract(make_contract("read_file", "path"), "load", Random(1))
    assert made["name"] == "load"
    assert made["inputSchema"]["properties"] == {"path": {"type": "string"}}
    assert made["inputSchema"]["required"] == ["path"]


INTENTS = [one for one in load_intents() if one.world in ("office-folder", "team-memory")]


def test_every_intent_says_what_is_checked_and_has_wordings_of_its_own_for_held_out_tasks():
    worlds = {source.world for source in load_sources()}
    for intent in load_intents():
        assert intent.changes or intent.answer, intent.name
        assert intent.requests, intent.name
        assert intent.held_out, intent.name
        assert not {*intent.requests} & {*intent.held_out}, intent.name
        assert intent.world in worlds, intent.name


def test_tasks_are_different_and_the_same_again_by_their_seeds():
    train = draw_tasks(INTENTS, 60, TRAIN, (1, 2))
    assert train == draw_tasks(INTENTS, 60, TRAIN, (1, 2))
    assert len({one.id for one in train}) == 60
    held = draw_tasks(INTENTS, 30, HELD_OUT, (3,))
    assert not {one.query for one in held} & {one.query for one in train}


def test_more_tasks_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="add seeds"):
        draw_tasks([one for one in INTENTS if one.name == "allowed-folders"], 50, TRAIN, (1,))


def test_there_are_sixty_real_endpoints_or_more():
    assert sum(len(source.tools) for source in load_sources()) >= 60


def test_a_tool_that_is_not_listed_is_no_endpoint():
    found = list_real({SOURCE: {"read_file": make_contract("read_file", "path")}})
    assert [(one.base, one.direct) for one in found] == [("read_file", True)]
    assert SOURCE not in found[0].id


@cases(
    "slots, expected",
    ({"paths": ["/a", "/b"], "path": "/c"}, {"paths": ["/a", "/b"]}),
    ({"path": "/c"}, {"paths": ["/c"]}),
    ({"name": "c"}, None),
)
def test_the_first_form_that_can_be_filled_is_the_call(slots, expected):
    assert make_endpoint("s", "read_multiple_files").write_call(slots) == expected


TEXT = f"size: 7 {'and more ' * 20}"


def call_proxy(endpoint: ToolEndpoint, times: int) -> tuple[list[ProxyAnswer], list[Any]]:
    """The answers over MCP, and what reached the tool behind the proxy."""
    reached: list[Any] = []

    async def forward(tool: str, arguments: dict[str, Any]) -> CallResult:
        reached.append((tool, arguments))
        return CallResult("ok", [{"type": "text", "text": TEXT}])

    async def run() -> list[ProxyAnswer]:
        async with ProxyPool(forward) as proxies:
            arguments = endpoint.write_call({"path": "/a"})
            assert arguments is not None
            return [
                await proxies.call(endpoint, dict(arguments), Random(seed)) for seed in range(times)
            ]

    return asyncio.run(run()), reached


def test_without_a_fault_the_answer_passes_through():
    answers, reached = call_proxy(make_endpoint("s", direct=False), 2)
    assert [(answer.texts, answer.kind) for answer in answers] == [((TEXT,), "ok")] * 2
    assert reached == [("read_text_file", {"path": "/a"})] * 2


@cases(
    "fault, kind, texts",
    (RANDOM, "tool_error", ("Error: upstream request failed",)),
    (EMPTY, "ok", ("",)),
    (SLOW, "timeout", ()),
)
def test_a_call_that_is_hit_does_not_reach_the_tool(fault, kind, texts):
    answers, reached = call_proxy(make_endpoint("s", fault=fault, direct=False), 6)
    hit = [answer for answer in answers if answer.texts != (TEXT,)]
    assert hit
    assert [(one.kind, one.texts) for one in hit] == [(kind, texts)] * len(hit)
    assert len(reached) == 6 - len(hit) > 0


def test_a_stale_answer_is_one_that_was_given_before():
    answers, reached = call_proxy(make_endpoint("s", fault=STALE, direct=False), 8)
    seen = {answer.texts for answer in answers[-4:]}
    assert seen == {(TEXT,)}
    assert len(reached) < 8


@cases("fault, start", (TRUNCATED, TEXT[:80]), (UNIT, "size: 70"))
def test_an_answer_that_is_spoilt_comes_from_the_tool(fault, start):
    [answer], reached = call_proxy(make_endpoint("s", fault=fault, direct=False), 1)
    assert answer.texts[0].startswith(start)
    assert answer.texts[0] != TEXT
    assert len(reached) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_strikes_as_often_as_it_says(fault):
    rng = Random(1)
    assert sum(is_hit(fault, rng) for _ in range(2000)) / 2000 == pytest.approx(
        RATES[fault], abs=0.04
    )


def test_no_fault_never_strikes():
    assert not is_hit(None, Random(1))


def test_a_truncated_answer_has_eighty_characters():
    assert change_answer(TRUNCATED, "x" * 200, Random(1)) == "x" * CUT


def test_another_unit_changes_numbers_but_no_dates_and_paths():
    changed = change_answer(UNIT, "price: 12.5 on 2026-01-02 in /a/7", Random(1))
    assert "2026-01-02" in changed
    assert "/a/7" in changed
    assert "12.5 " not in changed


def test_another_unit_asks_for_other_numbers_only():
    given = {"quantity": 3, "rows": [[2]], "name": "3", "force": True}
    changed = change_arguments(UNIT, given, Random(1))
    assert changed["quantity"] in (30, 300, 3000)
    assert changed["rows"] != [[2]]
    assert (changed["name"], changed["force"]) == ("3", True)
    assert given["quantity"] == 3


# --- what the report makes of it
STAGE, METHODS = make_stage(), {"toolflix": SuccessPrior}  # what stands in for the rival here


def test_the_report_tells_each_method_beside_what_learns_nothing():
    values = value_fixed(STAGE) | value_methods(STAGE, METHODS, 6, (0, 1))
    success = summarise_values(STAGE, values)
    assert success["oracle"]["top"]["success"]["value"] == 1
    assert success["retriever"]["top"]["less toolflix"]["n"] == 2
    assert "less toolflix" not in success["toolflix"]["top"]
    figures = {
        "log": {"success": success},
        "categories": summarise_categories(STAGE, values),
    }
    text = render_report(figures)
    assert "| log | top | less toolflix | by rank |" in text
    assert "| oracle | 1.000 [1.000, 1.000] |" in text


def test_a_table_is_described_by_its_counts():
    found = describe_table(STAGE)
    assert found["tasks"] == {"train": 6, "held-out": 2}
    assert (found["real"], found["variants"]) == (1, 2)
    assert found["any of five"] == 1
    assert found["success by fault"]["real"] == {"share": 0.0, "n": 8}


STAGE = make_stage()
HELD = STAGE.list_tasks(HELD_OUT)


@cases("actor, expected", ("top", 0.0), ("by rank", 0.30 / (0.55 + 0.30)))
def test_the_actor_takes_the_first_or_overrides_by_rank(actor, expected):
    orders = order_by_retriever(STAGE, HELD)
    assert value_orders(STAGE, HELD, orders, actor) == pytest.approx([expected] * 2)


def test_the_oracle_knows_the_true_rates():
    orders = order_by_oracle(STAGE, HELD)
    assert value_orders(STAGE, HELD, orders, "top").tolist() == [1, 1]


def test_the_curated_pool_holds_real_endpoints_only():
    assert [order.tolist() for order in order_curated(STAGE, HELD)] == [[0], [0]]


def test_a_log_has_one_outcome_a_task_and_is_a_function_of_its_seed():
    train = STAGE.list_tasks(TRAIN)
    log = draw_log(STAGE, train, 1)
    assert [one.task for one in log] == [one.id for one in train]
    assert [one.place for one in log] == [one.place for one in draw_log(STAGE, train, 1)]
    assert all(one.success == (one.place > 0) for one in log)
    times = [one.question.at for one in log]
    assert times == sorted(times)
    assert np.unique(times).size == len(log)


def test_an_actor_passes_over_tools_that_it_cannot_call_unless_all_are_such():
    stage = make_stage()
    first, second, third = stage.table.endpoints
    for name in (first, second):
        stage.table.outcomes[HELD[0].id, name] = TableCall(False, NO_CALL)
    assert stage.ask(HELD[0]).candidates.tolist() == [2]
    stage.table.outcomes[HELD[0].id, third] = TableCall(False, NO_CALL)
    assert stage.ask(HELD[0]).candidates.tolist() == [0, 1, 2]


def test_a_table_is_what_it_was_saved_as(tmp_path):
    table = make_stage().table
    table.save(tmp_path / "t")
    assert load_table(tmp_path / "t") == table
    with pytest.raises(KeyError):
        table.find("t0", "unknown")
