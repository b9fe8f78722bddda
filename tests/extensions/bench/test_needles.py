"""Needles and API-Bank as items, and who answers them without Inspect."""

import asyncio
import csv
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import tool_text
from extensions.bench.api_bank import read_first_calls, read_turns
from extensions.bench.benchmark_card import measure_alignment
from extensions.bench.benchmark_items import (
    BenchmarkPlan,
    BenchmarkSet,
    choose_items,
    judge_first_tool,
)
from extensions.bench.benchmark_models import (
    ActivePredictor,
    KeptPredictor,
    LocalSpeaker,
    RouterPools,
    RouterPredictor,
)
from extensions.bench.needles import NeedlePlan, make_needles, read_home, read_needles, space_sizes
from serving.agent_loop import OfflineSpeaker
from serving.discovery.request import write_block
from serving.index.model import IndexSource
from tests.serving.meta_server import ROWS, row
from tests.serving.test_adhoc import CLOCK, MAIL, written
from tests.support.cases import cases
from tests.training.evaluation.conftest import Scripted
from tests.training.evaluation.scripted_agent import says
from tests.vectors.conftest import WordEmbedder
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.caller_items import CallerItem
from training.evaluation.predictor import PredictionAnswer, PredictionRequest
from training.sets.split import TRAIN
from warehouse.errors import UnusableInput
from warehouse.home import claim_home
from warehouse.llm.chat import ChatTurn
from warehouse.llm.roles import LLMError
from warehouse.store import Warehouse

ASKED = [
    {"tool_id": "pypi:clock::get_time", "instruction": "tell the hour in a city"},
    {"tool_id": "pypi:mail::send_email", "instruction": "send an email to somebody"},
    {"tool_id": "npm:files::read_file", "instruction": "read one text file from disk"},
    {"tool_id": "npm:gone::x", "instruction": "nothing"},
]
TWIN = row("npm:copy", "read_file", "Read one text file from disk", {"required": ["path"]},
           annotations={"readOnlyHint": True})  # fmt: skip
SOURCE = IndexSource([*ROWS, TWIN], instructions={ROWS[0]["contract_digest"]: ["leaks"]})


def needles(**plan: Any) -> list[CallerItem]:
    return make_needles(SOURCE, ASKED, NeedlePlan(**plan))[0]


def ask(item: CallerItem) -> PredictionRequest:
    return PredictionRequest(item.item_id, item.instruction, item.tools, before=item.before)


class Knows:
    """A model that asks in good words, or picks the right function at once; `fails` where told."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    async def say(self, messages: Any, tools: Any) -> ChatTurn:
        if self.fails:
            raise LLMError("too_long", "a", "b", "c")
        request = next(message["content"] for message in messages if message["role"] == "user")
        name = next(one["tool_id"] for one in ASKED if one["instruction"] == request)
        names = [tool["function"]["name"] for tool in tools]
        fit = [one for one in names if f"__{name.partition('::')[2]}_" in one]
        if fit:
            return ChatTurn("", ((fit[0], "{}"),), "tool_calls", "m", 100, 5)
        return says(write_block(None, request))


@given(st.integers(1, 5_000), st.integers(1, 50))
def test_sizes_go_from_one_to_all_and_grow(most, count):
    sizes = space_sizes(most, count)
    assert (sizes, sizes[-1]) == (sorted(set(sizes)), most)
    assert len(sizes) <= count
    assert count == 1 or most == 1 or sizes[0] == 1


def test_a_needle_is_in_its_pool_at_its_place_and_pools_are_nested():
    items, other = make_needles(SOURCE, ASKED, NeedlePlan(sizes=4, positions=3, seeds=(1, 2)))
    assert other == 1
    pools: dict[tuple[str, int], set[str]] = {}
    for item in items:
        _, seed, size, place = item.item_id.split(":")
        names = [tool["name"] for tool in item.tools]
        assert (item.split, len(set(names)), len(names)) == (f"size {size}", int(size), int(size))
        assert names[int(place)] == item.expected[0]["name"] == item.row["tool"]
        pools[seed, int(size)] = set(names)
    for seed in ("1", "2"):
        assert sorted(size for of, size in pools if of == seed) == [1, 2, 5, 11]
        assert pools[seed, 1] <= pools[seed, 2] <= pools[seed, 5] <= pools[seed, 11]
    again = needles(seeds=(1, 2), sizes=4)
    assert [item.tools for item in again] == [item.tools for item in items], "drawn by the seeds"
    with pytest.raises(UnusableInput, match="1 requests, none for one of 11 tools"):
        make_needles(SOURCE, ASKED[3:])


def test_a_router_and_a_model_that_asks_it_find_a_needle_for_fewer_tokens(tmp_path):
    pools = RouterPools(tmp_path, WordEmbedder())
    # BFCL v4 has four questions without tools among live_irrelevance.
    (none,) = RouterPredictor(pools).predict([PredictionRequest("none", "Sing.", [])])
    assert (none.calls, none.kind, none.error) == ([], "no_call", None)
    failing = ActivePredictor("a:m", "endpoint", lambda: nullcontext(Knows(fails=True)), pools)
    (refused,) = failing.predict([ask(needles(sizes=1, positions=1)[0])])
    assert refused.error == "too_long"
    items, router = needles(sizes=3, positions=2), RouterPredictor(pools)
    active = ActivePredictor("active:m", "endpoint", lambda: nullcontext(Knows()), pools)
    verdicts = []
    for item in items:
        (answer,) = active.predict([ask(item)])
        (hit,) = router.predict([ask(item)])
        verdicts.append((judge_first_tool(item, answer), judge_first_tool(item, hit)))
        assert answer.facts["tool_tokens"] > 0
    assert all(asked["tool_ok"] for asked, _ in verdicts)
    assert [asked["first_ok"] for asked, _ in verdicts] == [hit["tool_ok"] for _, hit in verdicts]
    assert sum(hit["tool_ok"] for _, hit in verdicts) > len(items) / 2
    assert all(hit["among_5"] for _, hit in verdicts)
    # Rules ask where there is no model.
    rules = ActivePredictor("active:b", "baseline", lambda: nullcontext(OfflineSpeaker()), pools)
    answers = zip(items, rules.predict([ask(item) for item in items]), strict=True)
    assert sum(judge_first_tool(*pair)["tool_ok"] for pair in answers) > len(items) / 2


def test_words_nearer_to_the_tool_than_the_users_have_a_gain_of_that_much(tmp_path):
    pools, embedder = RouterPools(tmp_path, WordEmbedder()), WordEmbedder()
    active = ActivePredictor("active:m", "endpoint", lambda: nullcontext(Knows()), pools)
    item = needles(sizes=1, positions=1)[0]
    (answer,) = active.predict([ask(item)])
    text = tool_text(item.tools[0])
    row = {"item_id": item.item_id, "group": "g", "request": item.instruction}
    assert answer.facts["asked_for"] == item.instruction, "it asks in the user's words"
    copied, silent = {**row, "asked_for": text}, {**row, "asked_for": None}
    measured = measure_alignment([copied, silent], [item], embedder.embed)
    query = float(embedder.embed([text])[0] @ embedder.embed([item.instruction])[0])
    for name, value, n in (("query", query, 2), ("request", 1, 1), ("difference", 1 - query, 1)):
        assert (measured[name]["value"], measured[name]["n"]) == (pytest.approx(value, abs=1e-3), n)
    assert measure_alignment([silent], [item], embedder.embed)["request"]["n"] == 0
    assert measure_alignment([], [], embedder.embed)["query"]["n"] == 0


def test_a_tool_that_says_the_same_counts_too_and_a_sample_is_drawn_evenly():
    drawn = needles(sizes=1, positions=1, seeds=tuple(range(9)))
    item = next(item for item in drawn if item.row["tool"] == "npm:files::read_file")
    names = {
        name: judge_first_tool(item, PredictionAnswer([{"name": name, "arguments": {}}], "call"))
        for name in ("npm:files::read_file", "npm:copy::read_file", "pypi:mail::send_email", "x")
    }
    assert [verdict["tool_ok"] for verdict in names.values()] == [True, True, False, False]
    errors = [verdict["error_kind"] for verdict in names.values()]
    assert errors == [None, None, "wrong_tool", "unknown_tool"]
    items = needles(sizes=4, positions=3, seeds=(0, 1, 2))
    held = BenchmarkSet("needle", items, judge_first_tool, ("tool_ok",), (), narrows=False)
    chosen = choose_items(held, BenchmarkPlan(seed=1), 7)
    assert len(chosen) == 7
    assert {item.split for item in chosen} == {"size 1", "size 2", "size 5", "size 11"}
    assert chosen == choose_items(held, BenchmarkPlan(seed=1), 7)
    assert chosen != choose_items(held, BenchmarkPlan(seed=2), 7)


def test_a_local_answer_is_kept_under_its_weights_and_the_whole_question(tmp_path):
    asked: list[str] = []

    def say(request: PredictionRequest) -> PredictionAnswer:
        asked.append(request.item_id)
        calls = [{"name": "f", "arguments": {"n": len(asked)}}]
        return PredictionAnswer(calls, "call", "f()", 7, 3, seconds=0.5, facts={"first": "f"})

    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state")
    item, other = needles(sizes=2, positions=1)
    for weights, request, count in (
        ("a", ask(item), 1), ("a", ask(item), 1), ("a", ask(other), 2), ("b", ask(item), 3),
    ):  # fmt: skip
        kept = KeptPredictor(Scripted("local", say), warehouse.ledger, weights)
        (answer,) = kept.predict([request])
        assert len(asked) == count
    (again,) = kept.predict([ask(item)])
    assert again == answer == say(ask(item)).__class__(**vars(answer))
    assert (again.seconds, again.facts, again.prompt_tokens) == (0.5, {"first": "f"}, 7)


DIALOGUE = [
    {"role": "User", "text": "Wake me at seven."},
    {"role": "AI", "text": "I will sign you in."},
    {"role": "API", "api_name": "GetToken", "param_dict": {}, "result": {"output": {"token": "t"}}},
    {"role": "AI", "text": "Done."},
    {"role": "User", "text": "And the alarm?"},
    {"role": "API", "api_name": "AddAlarm", "param_dict": {"time": "7"},
     "result": {"output": "success"}},
    {"role": "API", "api_name": "NotListed", "param_dict": {}, "result": None},
]  # fmt: skip


def bank(folder: Path, *dialogue: object) -> Path:
    (folder / "data").mkdir(parents=True)
    spoken = folder / "lv1-lv2-samples" / "level-1-given-desc"
    spoken.mkdir(parents=True)
    info = "description = 'Adds an alarm'\ninput_parameters = {'time': {'type': 'str'}}"
    with (folder / "data" / "all_apis.csv").open("w", newline="") as file:
        made = csv.writer(file)
        made.writerow(["类名", "应用场景", "api_info"])
        made.writerow(["GetToken", "account", "description = 'Gets a token'"])
        made.writerow(["AddAlarm", "calendar", info])
        made.writerow(["Odd", "calendar", "."])
        made.writerow(["Sly", "calendar", "description = __import__('os').getcwd()"])
    lines = "".join(json.dumps(turn) + "\n" for turn in dialogue or DIALOGUE)
    (spoken / "a.jsonl").write_text(lines)
    return folder


def test_every_api_turn_is_an_item_in_both_pools(tmp_path):
    held = read_turns(BenchmarkPlan(bank(tmp_path / "b")))
    assert held.left_out == {"api_not_listed": 1}
    assert [(item.expected[0]["name"], item.split, len(item.tools)) for item in held.items] == [
        ("GetToken", "Domain, single", 1), ("GetToken", "Full, single", 4),
        ("AddAlarm", "Domain, multi", 3), ("AddAlarm", "Full, multi", 4),
    ]  # fmt: skip
    assert [message["content"] for message in held.items[2].before] == [
        "Wake me at seven.", "I will sign you in.", '[called GetToken: {"token": "t"}]', "Done.",
        "And the alarm?",
    ]  # fmt: skip
    assert [message["content"] for message in held.items[0].before] == ["Wake me at seven."]
    tools = {tool["name"]: tool for tool in held.items[1].tools}
    assert tools["AddAlarm"]["inputSchema"]["properties"]["time"]["type"] == "string"
    assert not tools["Sly"].get("description")


def test_a_first_call_is_an_item_where_its_values_were_said_among_the_nearest_names(tmp_path):
    call = {"role": "API", "api_name": "AddAlarm", "param_dict": {"time": "seven"}}
    held = read_first_calls(BenchmarkPlan(bank(tmp_path / "a", DIALOGUE[0], call)))
    (item,) = held.items
    assert item.instruction == "Wake me at seven."
    assert item.expected == [{"name": "AddAlarm", "arguments": {"time": "seven"}}]
    alarm = next(tool for tool in item.tools if tool["name"] == "AddAlarm")
    assert alarm["inputSchema"]["required"] == ["time"]
    unsaid = {**call, "param_dict": {"time": "noon"}}
    held = read_first_calls(BenchmarkPlan(bank(tmp_path / "b", DIALOGUE[0], unsaid)))
    assert (held.items, held.left_out) == ([], {"value_not_said": 1})
    with pytest.raises(UnusableInput, match=r"api-bank: no item in .*value_not_said 1"):
        choose_items(held, BenchmarkPlan(tmp_path), None)
    token = {"role": "API", "api_name": "GetUserToken", "param_dict": {"username": "me"}}
    call = {"role": "API", "api_name": "AddAlarm", "param_dict": {"hour": "seven"}}
    held = read_first_calls(BenchmarkPlan(bank(tmp_path / "c", DIALOGUE[0], token, call)))
    (item,) = held.items
    assert item.expected == [{"name": "AddAlarm", "arguments": {"hour": "seven"}}]
    alarm = next(tool for tool in item.tools if tool["name"] == "AddAlarm")
    assert alarm["inputSchema"]["required"] == list(alarm["inputSchema"]["properties"]) == ["hour"]
    plan = BenchmarkPlan(bank(tmp_path / "d", *DIALOGUE), candidates=2)
    (item,) = choose_items(read_first_calls(plan), plan, None)
    assert len(item.tools) == item.candidates == 2
    assert "GetToken" in {tool["name"] for tool in item.tools}
    every = BenchmarkPlan(plan.data, candidates=0)
    assert len(choose_items(read_first_calls(every), every, None)[0].tools) == 4


@cases(
    "turn",
    *([], {"role": "API"}, {"role": "API", "api_name": "AddAlarm", "input": {}}),
    *({"role": "API", "result": [1]}, {"role": "User"}, {"text": "x"}),
)
def test_a_dialogue_of_another_version_is_named(tmp_path, turn):
    with pytest.raises(UnusableInput, match=r"a\.jsonl: .*expected a JSON object a line"):
        read_turns(BenchmarkPlan(bank(tmp_path / "b", turn)))


def test_a_folder_that_is_no_api_bank_is_named(tmp_path):
    made = bank(tmp_path / "b")
    (made / "data" / "all_apis.csv").write_text("a,b\n1,2\n")
    for data, problem in ((tmp_path, "all_apis"), (None, "expected --data DIR"), (made, "no APIs")):
        with pytest.raises(UnusableInput, match=problem):
            read_turns(BenchmarkPlan(data))


def test_needles_of_a_home_ask_with_the_requests_of_its_test_splits(home, made, tmp_path):
    source, asked = read_home(Warehouse(home=home, state=home / "state"))
    texts = {one["instruction"] for one in asked}
    held_out = {row["instruction"] for row in made.rows if row["split"] != TRAIN}
    assert texts
    assert texts <= held_out - {row["instruction"] for row in made.rows if row["split"] == TRAIN}
    assert "What is the plural of cactus?" not in texts
    with pytest.raises(UnusableInput, match="none for one of 0 tools"):
        make_needles(source, asked)
    empty = tmp_path / "empty"
    claim_home(empty)
    with pytest.raises(UnusableInput, match="run `make run` first, or give --data"):
        read_needles(BenchmarkPlan(warehouse=Warehouse(home=empty, state=empty / "state")))


def test_needles_of_files(tmp_path):
    servers = written(tmp_path / "servers.jsonl", CLOCK, MAIL)
    rows = [{"tool_id": "npm:mail::send_email", "instruction": "send an email to Ada"}]
    asked = written(tmp_path / "asked.jsonl", *rows)
    options = {"requests": str(asked), "sizes": "2", "positions": "1", "seeds": "2"}
    held = read_needles(BenchmarkPlan(servers, options=options))
    assert [item.split for item in held.items] == ["size 1", "size 3"] * 2
    assert held.servers["npm:mail"]
    for changed, message in (
        ({**options, "sizes": "0"}, "option sizes=0: expected a number from 1 to 1000"),
        ({}, "together, or neither"),
    ):
        with pytest.raises(UnusableInput, match=message):
            read_needles(BenchmarkPlan(servers, options=changed))


def test_a_local_model_converses_and_says_what_does_not_fit(small_caller, tmp_path):
    speaker = LocalSpeaker(AdapterPredictor(tmp_path, small_caller, max_new=8))
    messages = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hello."}]
    turn = asyncio.run(speaker.say(messages, []))
    assert turn.prompt_tokens > 0
    assert turn.completion_tokens <= 9
    call = {"id": "1", "type": "function", "function": {"name": "x", "arguments": '{"a": 1}'}}
    called = [{"role": "assistant", "content": "", "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "1", "content": "done"}]  # fmt: skip
    assert asyncio.run(speaker.say([*messages, *called], [])).prompt_tokens > turn.prompt_tokens
    with pytest.raises(LLMError, match="too_long"):
        asyncio.run(speaker.say([{"role": "user", "content": "word " * 50_000}], []))
