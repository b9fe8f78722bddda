"""Active discovery: arms over needle grids and API-Bank, and `toolmill active-eval`."""

import asyncio
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.bench.active_cases import (
    ARMS,
    CaseSet,
    LocalSpeaker,
    NeedlePlan,
    make_needles,
    read_api_bank,
    read_home,
    select_source,
    space_sizes,
)
from extensions.bench.active_run import (
    ActiveContest,
    RouterPools,
    evaluate_arms,
    run_arms,
    sample_cases,
    summarise_arms,
    write_measured,
    write_table,
)
from serving.agent_loop import OfflineSpeaker
from serving.discovery.request import write_block
from serving.index.model import IndexSource
from tests.serving.agent.test_command import home as _own_home  # noqa: F401
from tests.serving.meta_server import ROWS, row
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.training.evaluation.scripted_agent import says
from tests.vectors.conftest import WordEmbedder
from training.evaluation.adapter_predictor import AdapterPredictor
from training.sets.split import TRAIN
from training.sets.training_set import TrainingSet
from warehouse.errors import UnusableInput
from warehouse.home import claim_home
from warehouse.llm.chat import ChatTurn, write_wire_name
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


def needles(**plan: Any) -> CaseSet:
    return make_needles(SOURCE, ASKED, NeedlePlan(**plan))


class Knows:
    """A model that asks in good words, or picks the right function at once; `fails` where told."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ChatTurn:
        if self.fails:
            raise LLMError("too_long", "a", "b", "c")
        request = next(message["content"] for message in messages if message["role"] == "user")
        name = next(one["tool_id"] for one in ASKED if one["instruction"] == request)
        names = [tool["function"]["name"] for tool in tools]
        fit = [one for one in names if f"__{name.partition('::')[2]}_" in one]
        if fit:
            return ChatTurn("", ((fit[0], "{}"),), "tool_calls", "m", 100, 5)
        return says(write_block(None, request))


def no_calls(_: str) -> list[tuple[str, Any]]:
    return []


@given(st.integers(1, 5_000), st.integers(1, 50))
def test_sizes_go_from_one_to_all_and_grow(most: int, count: int) -> None:
    sizes = space_sizes(most, count)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == most
    assert len(sizes) <= count
    assert count == 1 or most == 1 or sizes[0] == 1


def test_a_needle_is_in_its_pool_at_its_place_and_pools_are_nested() -> None:
    held = needles(sizes=4, positions=3, seeds=(1, 2))
    assert held.left_out == {"other_tools": 1}
    for case in held.cases:
        cell = dict(case.cell)
        assert len(set(case.pool)) == len(case.pool) == cell["size"]
        assert case.pool[cell["position"]] == case.gold
    for seed in (1, 2):
        pools = {len(c.pool): set(c.pool) for c in held.cases if f":{seed}:" in c.case_id}
        assert sorted(pools) == [1, 2, 5, 11]
        assert pools[1] <= pools[2] <= pools[5] <= pools[11]
    assert needles(seeds=(1, 2), sizes=4).cases == held.cases, "the same seeds draw the same"


def test_an_index_of_a_pool_holds_no_accepted_request() -> None:
    kept = select_source(SOURCE, ["npm:files::read_file"])
    assert [one["tool"] for one in kept.rows] == ["read_file"]
    assert kept.instructions == {}


def test_requests_for_other_tools_alone_are_refused() -> None:
    with pytest.raises(UnusableInput, match="1 requests, none for one of 11 tools"):
        make_needles(SOURCE, ASKED[3:])


async def run_arms_of(held: CaseSet, place: Path, speaker: Any, arms: Sequence[str] = ARMS) -> Any:
    facts = {"provider": "scripted", "model": "m"}
    return await evaluate_arms(
        held, arms, speaker, no_calls, WordEmbedder(), place, facts=facts, at_once=2
    )


async def test_a_model_that_knows_what_it_wants_is_right_in_every_arm_at_fewer_tokens(
    tmp_path: Path,
) -> None:
    held = needles(sizes=3, positions=2)
    made = await run_arms_of(held, tmp_path, Knows())
    arms = made.summary["cells"]["all"]["arms"]
    assert list(arms) == list(ARMS)
    assert len(made.rows) == 4 * len(held.cases)
    assert all(arms[name]["right"]["value"] == 1.0 for name in ARMS[1:])
    assert arms["active"]["first"]["value"] == arms["retrieval"]["right"]["value"] > 0.5
    assert arms["standard"]["first"] is None
    assert arms["retrieval"]["tool_tokens"] == 0
    largest = made.summary["cells"]["size 11"]["arms"]
    assert largest["active"]["tool_tokens"] < largest["standard"]["tool_tokens"]
    assert arms["standard"]["prompt_tokens"] == 100
    difference = made.summary["cells"]["all"]["differences"]["active - standard"]
    assert difference == {"value": 0.0, "low": 0.0, "high": 0.0, "n": len(held.cases)}


async def test_a_tool_that_says_the_same_counts_too(tmp_path: Path) -> None:
    pools = RouterPools(tmp_path, needles(sizes=1, positions=1), WordEmbedder())
    case = next(
        one
        for seed in range(9)
        for one in needles(sizes=1, positions=1, seeds=(seed,)).cases
        if one.gold == "npm:files::read_file"
    )

    class Other:
        async def say(self, messages: Any, tools: Any) -> ChatTurn:
            return ChatTurn(
                "", ((write_wire_name("npm:copy::read_file"), "{}"),), "tool_calls", "m", 0, 0
            )

    (made,) = await run_arms([case], ["standard"], pools, ActiveContest(Other(), no_calls))
    assert made["right"] is True


async def test_what_an_endpoint_refuses_is_wrong_and_counted_as_failed(tmp_path: Path) -> None:
    made = await run_arms_of(
        needles(sizes=2, positions=1), tmp_path, Knows(fails=True), ["standard", "active"]
    )
    arms = made.summary["cells"]["all"]["arms"]
    assert arms["standard"]["failed"] == arms["active"]["failed"] == {"too_long": 2}
    assert arms["standard"]["right"]["value"] == 0.0


async def test_rules_stand_in_for_a_model_in_every_arm(tmp_path: Path) -> None:
    made = await run_arms_of(needles(sizes=3, positions=2), tmp_path, OfflineSpeaker())
    arms = made.summary["cells"]["all"]["arms"]
    assert 0.5 < arms["active"]["right"]["value"] <= arms["active"]["first"]["value"]
    assert arms["standard"]["right"]["value"] > 0.5
    assert arms["active"]["failed"] == {}


async def test_rows_and_table_are_written(tmp_path: Path) -> None:
    made = await run_arms_of(needles(sizes=2, positions=1), tmp_path / "pools", Knows(), ["active"])
    names = [path.name for path in write_measured(tmp_path / "out", made)]
    assert names == ["items.jsonl", "summary.json", "report.md"]
    lines = (tmp_path / "out" / "items.jsonl").read_text().splitlines()
    assert [json.loads(line)["arm"] for line in lines] == ["active"] * 2
    page = (tmp_path / "out" / "report.md").read_text().splitlines()
    assert page[0].startswith("provider=scripted, model=")
    assert "2 of 2 cases" in page[0]
    assert "too few for an interval" in page[1]
    table = list(write_table(made.summary))
    assert page[3:] == table
    assert table[2].startswith("| all | active | 2 | 1.000 [1.000, 1.000] |")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["provider"] == "scripted"


def test_a_part_of_the_cases_is_drawn_evenly_from_all_cells() -> None:
    cases = needles(sizes=4, positions=3, seeds=(0, 1, 2)).cases
    kept = sample_cases(cases, 7)
    assert len(kept) <= 7
    assert len({one.cell for one in kept}) == len(kept)
    assert sample_cases(cases, 10_000) == list(cases)


def test_intervals_draw_whole_groups() -> None:
    rows = [
        {"case_id": str(n), "arm": "active", "group": "one", "right": n < 5, "first": True,
         "ended": "planned", "tool_tokens": 1, "prompt_tokens": 0, "completion_tokens": 0,
         "turns": 1, "searches": 1, "seconds": 0.1, "size": 3}
        for n in range(10)
    ]  # fmt: skip
    summary = summarise_arms(rows, ["size"])
    right = summary["cells"]["size 3"]["arms"]["active"]["right"]
    assert (right["value"], right["low"], right["high"]) == (0.5, 0.5, 0.5)
    assert summary["groups"] == 1


DIALOGUE = [
    {"role": "User", "text": "Wake me at seven."},
    {"role": "AI", "text": "I will sign you in."},
    {"role": "API", "api_name": "GetToken", "result": {"output": {"token": "t"}}},
    {"role": "AI", "text": "Done."},
    {"role": "User", "text": "And the alarm?"},
    {"role": "API", "api_name": "AddAlarm", "result": {"output": "success"}},
    {"role": "API", "api_name": "NotListed", "result": None},
]


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


def test_every_api_turn_is_a_case_in_both_pools(tmp_path: Path) -> None:
    held = read_api_bank(bank(tmp_path / "b"))
    assert held.left_out == {"api_not_listed": 1}
    assert [(case.gold, dict(case.cell)) for case in held.cases] == [
        ("GetToken::GetToken", {"pool": "Domain", "dialogue": "single"}),
        ("GetToken::GetToken", {"pool": "Full", "dialogue": "single"}),
        ("AddAlarm::AddAlarm", {"pool": "Domain", "dialogue": "multi"}),
        ("AddAlarm::AddAlarm", {"pool": "Full", "dialogue": "multi"}),
    ]
    assert [len(case.pool) for case in held.cases] == [1, 4, 3, 4]
    contents = [message["content"] for message in held.cases[2].messages]
    assert contents == [
        "Wake me at seven.",
        "I will sign you in.",
        '[called GetToken: {"token": "t"}]',
        "Done.",
        "And the alarm?",
    ]
    assert [message["content"] for message in held.cases[0].messages] == ["Wake me at seven."]
    alarm = next(one for one in held.source.rows if one["tool"] == "AddAlarm")
    contract = json.loads(alarm["contract"])
    assert contract["inputSchema"]["properties"]["time"]["type"] == "string"
    sly = next(one for one in held.source.rows if one["tool"] == "Sly")
    assert not json.loads(sly["contract"]).get("description")


@pytest.mark.parametrize(
    "turn", [[], {"role": "API"}, {"role": "User"}, {"text": "x"}, {"role": "API", "result": [1]}]
)
def test_a_dialogue_of_another_shape_is_named(tmp_path: Path, turn: object) -> None:
    with pytest.raises(UnusableInput, match=r"a\.jsonl: .*expected a JSON object a line"):
        read_api_bank(bank(tmp_path / "b", turn))


def test_a_folder_that_is_no_api_bank_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="all_apis"):
        read_api_bank(tmp_path)
    made = bank(tmp_path / "b")
    (made / "data" / "all_apis.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UnusableInput, match="no APIs"):
        read_api_bank(made)


async def test_api_bank_runs_in_every_arm(tmp_path: Path) -> None:
    made = await run_arms_of(
        read_api_bank(bank(tmp_path / "b")), tmp_path / "pools", OfflineSpeaker()
    )
    cells = made.summary["cells"]
    assert set(cells) == {
        "all", "pool Domain, dialogue single", "pool Full, dialogue single",
        "pool Domain, dialogue multi", "pool Full, dialogue multi",
    }  # fmt: skip
    assert cells["pool Domain, dialogue single"]["arms"]["standard"]["right"]["value"] == 1.0


def test_needles_of_a_home_ask_with_the_requests_of_its_test_splits(
    home: Path, made: TrainingSet
) -> None:
    source, asked = read_home(Warehouse(home=home, state=home / "state"))
    held_out = {row["instruction"] for row in made.rows if row["split"] != TRAIN}
    trained = {row["instruction"] for row in made.rows if row["split"] == TRAIN}
    assert asked
    assert {one["instruction"] for one in asked} <= held_out - trained
    assert "What is the plural of cactus?" not in {one["instruction"] for one in asked}
    with pytest.raises(UnusableInput, match="none for one of 0 tools"):
        make_needles(source, asked)


def test_api_bank_in_every_arm_without_a_model(tmp_path: Path) -> None:
    asked = ("active-eval", "--set", "api-bank", "--data", bank(tmp_path / "b"), "--limit", 2)
    code, out, err = run(*asked, "--out", tmp_path / "out", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["provider"], report["cases"], report["of_cases"]) == ("offline", 2, 4)
    assert set(report["cells"]["all"]["arms"]) == {
        "retrieval", "standard", "active", "active_example"
    }  # fmt: skip
    assert len((tmp_path / "out" / "items.jsonl").read_text().splitlines()) == 8


def test_needles_of_files(tmp_path: Path) -> None:
    servers = written(tmp_path / "servers.jsonl", CLOCK, MAIL)
    rows = [{"tool_id": "npm:mail::send_email", "instruction": "send an email to Ada"}]
    asked = written(tmp_path / "asked.jsonl", *rows)
    code, out, err = run(
        "active-eval",
        "--data",
        servers,
        "--requests",
        asked,
        "--arm",
        "retrieval",
        "--arm",
        "active",
    )
    assert code == 0, err
    assert "| size 3 | active |" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--set", "other"), 2, "known: needle, api-bank"),
        (("--set", "api-bank"), 2, "--data DIR"),
        (("--set", "api-bank", "--data", "none"), 2, "all_apis.csv"),
        (("--data", "none"), 2, "--requests FILE together"),
        (("--arm", "best"), 2, "known: retrieval"),
    ],
)
def test_bad_input_is_one_error(arguments: tuple[str, ...], code: int, message: str) -> None:
    found = run("active-eval", *arguments)
    assert found[0] == code, found
    assert message in found[2]
    assert found[1] == ""


def test_a_home_without_a_training_set_says_what_to_run_or_give(tmp_path: Path) -> None:
    claim_home(tmp_path / "home")
    code, _, error = run("active-eval")
    assert code == 2
    assert "run `make run` first, or give --data" in error


def test_a_local_model_converses_and_says_what_does_not_fit(
    small_caller: Path, tmp_path: Path
) -> None:
    speaker = LocalSpeaker(AdapterPredictor(tmp_path, small_caller, max_new=8))
    messages = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hello."}]
    turn = asyncio.run(speaker.say(messages, []))
    assert turn.prompt_tokens > 0
    assert turn.completion_tokens <= 9
    call = {"id": "1", "type": "function", "function": {"name": "x", "arguments": '{"a": 1}'}}
    called = [{"role": "assistant", "content": "", "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "1", "content": "done"}]  # fmt: skip
    after = asyncio.run(speaker.say([*messages, *called], []))
    assert after.prompt_tokens > turn.prompt_tokens
    with pytest.raises(LLMError, match="too_long"):
        asyncio.run(speaker.say([{"role": "user", "content": "word " * 50_000}], []))
