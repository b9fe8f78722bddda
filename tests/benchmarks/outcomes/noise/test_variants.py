"""A table of three endpoints and its variants, and a proxy that makes noise."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from assets.servers.calls.result import CallResult
from benchmarks.outcomes.noise.build import (
    CHANGED_SHARE,
    change_endpoints,
    make_newcomers,
    make_variants,
    paraphrase_contract,
    paraphrase_name,
    paraphrase_text,
)
from benchmarks.outcomes.noise.endpoints import (
    AFTER,
    BEFORE,
    ToolEndpoint,
    list_real,
    load_sources,
    rename_arguments,
)
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, draw_tasks, load_intents
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
from tests.benchmarks.outcomes.noise.stages import SOURCE, make_contract, make_endpoint
from tests.support.cases import cases

REAL = [make_endpoint(f"srv-{at}", "read_text_file") for at in range(20)]


def test_each_fault_is_as_frequent_and_a_fifth_has_none():
    made = make_variants(REAL, 75, 1)
    faults = [one.faults[BEFORE] for one in made]
    assert {name: faults.count(name) for name in FAULTS} == dict.fromkeys(FAULTS, 10)
    assert faults.count(None) == 15
    assert len({one.id for one in made}) == 75
    assert not any(one.direct for one in made)


def test_variants_are_a_function_of_their_seed():
    assert make_variants(REAL, 10, 1) == make_variants(REAL, 10, 1) != make_variants(REAL, 10, 2)


def test_a_fifth_changes_and_newcomers_stay():
    pool = [*REAL, *make_variants(REAL, 80, 1), *make_newcomers(REAL, 5, 1)]
    made = change_endpoints(pool, 1)
    changed = [one for one in made if one.changes]
    assert len(changed) == round(100 * CHANGED_SHARE)
    assert all((one.faults[BEFORE] is None) != (one.faults[AFTER] is None) for one in changed)
    assert any(one.renames for one in changed)
    assert not all(one.renames for one in changed)
    assert not any(one.newcomer for one in changed)


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
    assert make_endpoint("s", "read_multiple_files").write_call(slots, BEFORE) == expected


def test_a_renamed_argument_is_sent_by_its_new_name_and_reaches_the_tool_by_its_old():
    changed = rename_arguments(make_endpoint("s"), {"path": "ref"}, "now otherwise")
    assert changed.write_call({"path": "/c"}, BEFORE) == {"path": "/c"}
    sent = changed.write_call({"path": "/c"}, AFTER)
    assert sent == {"ref": "/c"}
    assert sent is not None
    assert changed.translate_call(sent) == {"path": "/c"}
    assert changed.contracts[AFTER]["inputSchema"]["required"] == ["ref"]
    assert changed.digest_contract(BEFORE) != changed.digest_contract(AFTER)


TEXT = f"size: 7 {'and more ' * 20}"


def call_proxy(
    endpoint: ToolEndpoint, times: int, phase: int = 0
) -> tuple[list[ProxyAnswer], list[Any]]:
    """The answers over MCP, and what reached the tool behind the proxy."""
    reached: list[Any] = []

    async def forward(tool: str, arguments: dict[str, Any]) -> CallResult:
        reached.append((tool, arguments))
        return CallResult("ok", [{"type": "text", "text": TEXT}])

    async def run() -> list[ProxyAnswer]:
        async with ProxyPool(forward) as proxies:
            arguments = endpoint.write_call({"path": "/a"}, phase)
            assert arguments is not None
            return [
                await proxies.call(endpoint, phase, dict(arguments), Random(seed))
                for seed in range(times)
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
    answers, reached = call_proxy(make_endpoint("s", faults=(fault, fault), direct=False), 6)
    hit = [answer for answer in answers if answer.texts != (TEXT,)]
    assert hit
    assert [(one.kind, one.texts) for one in hit] == [(kind, texts)] * len(hit)
    assert len(reached) == 6 - len(hit) > 0


def test_a_stale_answer_is_one_that_was_given_before():
    answers, reached = call_proxy(make_endpoint("s", faults=(STALE, STALE), direct=False), 8)
    seen = {answer.texts for answer in answers[-4:]}
    assert seen == {(TEXT,)}
    assert len(reached) < 8


@cases("fault, start", (TRUNCATED, TEXT[:80]), (UNIT, "size: 70"))
def test_an_answer_that_is_spoilt_comes_from_the_tool(fault, start):
    [answer], reached = call_proxy(make_endpoint("s", faults=(fault, fault), direct=False), 1)
    assert answer.texts[0].startswith(start)
    assert answer.texts[0] != TEXT
    assert len(reached) == 1


def test_a_changed_contract_takes_its_new_names_only():
    endpoint = replace(make_endpoint("s", direct=False))
    changed = rename_arguments(endpoint, {"path": "ref"}, "now otherwise")
    _, reached = call_proxy(changed, 1, phase=1)
    assert reached == [("read_text_file", {"path": "/a"})]


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
