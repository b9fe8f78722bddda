"""The offline generator: valid, grounded, varied, reproducible, honest, and not an echo."""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import ParameterSlot, read_purpose, read_slots
from assets.synthesis.offline.choice import choose_tool
from assets.synthesis.offline.invented_values import find_sort, make_from_pattern
from assets.synthesis.offline.provider import OfflineProvider, answer_requests
from assets.synthesis.offline.wording import find_absent
from assets.synthesis.role_schemas import (
    CallArguments,
    IncompleteRequest,
    MultiCallRequest,
    RequestDrafts,
    RewrittenRequest,
    ToolChoice,
    ToollessRequest,
)
from assets.synthesis.verify.pair_checks import find_parroting
from assets.synthesis.verify.rules import verify
from tests.support.cases import cases
from tests.support.examples import examples
from tests.synthesis.contracts import ALL, CITY_TIME, CONVERT, CREATE_ISSUE, READ_FILE, make_tool
from warehouse.llm.client import LLMError, ModelRequest, Role

CONTRACTS = [canonicalize_contract(tool) for tool in ALL]


def ask(role: str, schema: type[BaseModel], meta: dict[str, Any], seed: int = 0) -> Any:
    request = ModelRequest(Role(role), [], schema, seed, meta, 1024)
    completion = asyncio.run(OfflineProvider().answer(request))
    assert completion.model.startswith("offline-")
    return schema.model_validate_json(completion.text)


def grounded(of: dict, text: str, values: dict, borrowed: list[str] | tuple = ()) -> bool:
    return not [name for name in find_absent(of, text, values) if name not in borrowed]


def draft(of: dict[str, Any], count: int, seeds: int | range = 1, **meta: Any) -> list[dict]:
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    asked = {"contract": of, "count": count, **meta}
    return [request for seed in seeds for request in answer_requests(asked, seed)["requests"]]


READ, ISSUE, TIME = map(canonicalize_contract, (READ_FILE, CREATE_ISSUE, CITY_TIME))


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
@cases("seed", 0, 1, 2)
def test_every_call_fits_its_contract_and_every_value_is_in_the_text(of, seed):
    for request in answer_requests({"contract": of, "count": 6}, seed)["requests"]:
        assert validate_call(of, request["values"]) == []
        result = verify(of, request["instruction"], request["values"], server="npm:demo-server")
        kinds = set(result.kinds) - {"copies_description"}
        assert not kinds, (request, result.findings)


def test_the_same_seed_makes_the_same_requests_and_another_seed_others():
    of = READ
    first, again = (answer_requests({"contract": of, "count": 3}, 7) for _ in range(2))
    assert json.dumps(first) == json.dumps(again)
    assert first != answer_requests({"contract": of, "count": 3}, 8)


@cases(
    "hint, limits, choices",
    ('Operation type ("add", "remove", "list", "update")', {}, ["add", "remove", "list", "update"]),
    ("Sort by, either 'name' or 'size'", {"minLength": 1}, ["name", "size"]),
    ("One of: `top`, `new`, `ask_hn`", {"pattern": "^[a-z_]+$"}, ["top", "new", "ask_hn"]),
    ("Name of the hook (e.g., 'pre-commit', 'post-merge')", {}, []),
    ("Block number, hash, or 'latest'/'pending'", {}, []),
    ('Any name except: "admin", "root"', {}, []),
    ('Must not be one of "admin", "root"', {}, []),
    ('City: "Rome", "Paris", etc.', {}, []),
    ('Code, of words such as these: "add", "remove"', {"minLength": 5}, []),
    ('Code ("add", "remove")', {"pattern": "^[A-Z]{3}$"}, []),
)
def test_words_that_a_description_lists_are_the_choices(hint, limits, choices):
    mode = {"type": "string", **limits}
    schema = {"type": "object", "properties": {"mode": mode}, "required": ["mode"]}
    of = {"name": "set_mode", "description": f"Sets it.\n\nArgs:\n  mode: {hint}\n"}
    of = canonicalize_contract(of | {"inputSchema": schema})
    assert read_slots(of)[0].choices == choices
    drawn = {request["values"]["mode"] for request in draft(of, 4, 5)}
    assert not choices or drawn <= set(choices)


@cases("others, is_limit", (["left", "width"], False), (["query"], True))
def test_a_top_beside_other_sides_is_no_number_of_results(others, is_limit):
    number = {"type": "number"}
    schema = {"type": "object", "properties": dict.fromkeys(["top", *others], number)}
    of = {"name": "add_box", "description": "Adds a box.", "inputSchema": schema}
    of = canonicalize_contract(of | {"inputSchema": schema | {"required": ["top"]}})
    texts = [request["instruction"] for request in draft(of, 4, 10)]
    said = [
        text for text in texts if re.search(r"at most|no more than|is enough|of them|up to", text)
    ]
    assert bool(said) == is_limit


_VALUES_ELSEWHERE = """
import random
from assets.synthesis.offline.invented_values import invent_value
sorts = "person company city address username email ip timezone currency language job isbn iban"
rng = random.Random(5)
print([invent_value(sort, rng) for sort in sorts.split() for _ in range(25)])
"""
_WORLDS_ELSEWHERE = """
import json, random
from assets.synthesis.writing.profiles import _DRAWN, make_environment
print(json.dumps([make_environment(code, random.Random(5)) for code in _DRAWN["locales"]]))
"""


@cases("program", _VALUES_ELSEWHERE, _WORLDS_ELSEWHERE)
def test_draws_do_not_depend_on_the_process_that_makes_them(program):
    environments = ({**os.environ, "PYTHONHASHSEED": seed} for seed in "12")
    command = [sys.executable, "-c", program]
    first, second = (subprocess.check_output(command, env=env) for env in environments)
    assert first == second != b""


def test_requests_of_one_tool_differ_and_hold_the_required_values_and_some_optional_ones():
    answer = draft(READ, 3, 10)
    assert len({r["instruction"] for r in answer}) == len(answer)
    assert len({r["values"]["path"] for r in answer}) > 20
    assert {r["kind"] for r in answer} == {"direct", "detailed", "implicit"}
    zones = {item["values"]["timezone"] for item in draft(TIME, 1, 40)}
    assert {"America/New_York", "Europe/London"} <= zones  # quoted in the description
    answer = draft(ISSUE, 3, 12)
    assert all({"project_key", "title", "priority"} <= r["values"].keys() for r in answer)
    assert {len(r["values"]) > 3 for r in answer} == {True, False}


@cases(
    "name, description, verb, phrase",
    ("get_sum", "Returns the sum of two numbers", "return", "the sum of two numbers"),
    ("x", "This tool allows you to search the web for news.", "search", "the web for news"),
    ("x", "Tool for listing open invoices", "list", "open invoices"),
    ("git_status", "", "get", "git status"),
    ("jira_get_issue", "", "get", "issue in jira"),
    ("demote_members", "Demote members of a group", "demote", "members of a group"),
    ("weather", "根据城市查询天气", "get", "weather"),
    ("read", "Read a page and return its text as JSON", "read", "a page"),
)
def test_the_purpose_is_read_from_description_or_name(name, description, verb, phrase):
    purpose = read_purpose({"name": name, "description": description})
    assert (purpose.verb, purpose.rest) == (verb, phrase)


def test_slots_resolve_references_and_nullable_unions():
    by_name = {slot.name: slot for slot in read_slots(ISSUE)}
    assert by_name["estimate"].type == "integer"
    assert [slot.required for slot in by_name.values()][:3] == [True] * 3


@cases("pattern", r"^[A-Z]{2}-\d{3}$", r"^(open|done)$", r"^#[0-9a-f]{6}$")
def test_a_simple_pattern_is_met(pattern):
    from_pattern = make_from_pattern(pattern, random.Random(1))
    assert from_pattern is not None
    assert re.fullmatch(pattern, from_pattern)


_SCALARS = st.one_of(
    st.fixed_dictionaries({"type": st.just("string"), "minLength": st.integers(0, 40)}),
    st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.integers(-50, 5000)}),
    st.fixed_dictionaries({"type": st.just("number"), "maximum": st.integers(-50, 5000)}),
    st.fixed_dictionaries({"type": st.just("boolean")}),
    st.fixed_dictionaries({"enum": st.lists(st.text("abcxyz ", min_size=1), min_size=1)}),
)


@examples(60)
@given(
    properties=st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(_[a-z]{1,6})?", fullmatch=True), _SCALARS
    ),
    name=st.text(min_size=1, max_size=20).filter(str.strip),
    description=st.text(max_size=120),
    seed=st.integers(0, 99),
)
def test_any_contract_gets_valid_calls_and_text(properties, name, description, seed):
    of = canonicalize_contract(make_tool(name, description, properties, *properties))
    for request in answer_requests({"contract": of, "count": 3}, seed)["requests"]:
        assert request["instruction"].strip()
        assert validate_call(of, request["values"]) == []


@cases(
    "name, description, form",
    ("from", "Start date (YYYY-MM-DD)", r"\d{4}-\d\d-\d\d"),
    ("id", "The UUID of the object to retrieve.", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("query", "The SQL query to dry run", r"(?s)(?i:select|with|insert|update|delete)\b.*"),
)
def test_a_value_has_the_form_that_its_description_states(name, description, form):
    properties = {name: {"type": "string", "description": description}}
    of = make_tool("look_up", "Look something up.", properties, name)
    for seed in range(3):
        for request in answer_requests({"contract": of, "count": 6}, seed)["requests"]:
            assert re.fullmatch(form, request["values"][name]), request


@cases(
    "description",
    "The context for generating the SQL statement.",
    "Default type, of integer, string, uuid",
    "Database to run the SQL query in",
    "Phone number with country code",
    "Output format; dates are shown as YYYY-MM-DD",
)
def test_a_form_that_a_description_only_mentions_is_not_the_values(description):
    slot = ParameterSlot("name", {"type": "string"}, True, ("name",), description)
    assert find_sort(slot) == find_sort(replace(slot, hint=""))


def test_the_caller_gives_the_values_and_repairs_wrong_ones():
    of = canonicalize_contract(CONVERT)
    values = {"amount": 5, "source_currency": "EUR", "target_currency": "SEK"}
    assert ask("caller", CallArguments, {"contract": of, "values": values}).arguments == values
    wrong = {"amount": "5", "source_currency": "EUR", "to": "SEK"}
    meta = {"contract": of, "values": values, "wrong": wrong, "error": "amount is not a number"}
    assert ask("caller", CallArguments, meta).arguments == values
    repaired = ask("caller", CallArguments, {**meta, "values": {}}).arguments
    assert validate_call(of, repaired) == []
    assert (repaired["amount"], repaired["source_currency"]) == (5, "EUR")


@cases("role", "checker_a", "checker_b")
@cases(
    "instruction, right",
    ("What time is it in the timezone of Chicago right now?", "get_current_time"),
    ("Open the file notes.txt and show me its contents", "read_text_file"),
    ("File a new issue in the project HARB titled 'Ice on the pier'", "jira_create_issue"),
    ("Convert 30 euros to Swedish kronor, I only know the currency codes", "convert_amount"),
    ("The knowledge graph lacks the relations between these entities", "create_relations"),
    ("Why does my dog turn in circles before lying down?", None),
    ("Tell me a joke to cheer me up.", None),
    ("", None),
)
def test_a_checker_picks_what_the_words_speak_of_and_else_none(role, instruction, right):
    for seed in range(4):
        offered = random.Random(seed).sample(CONTRACTS, len(CONTRACTS))
        answer = ask(role, ToolChoice, {"contracts": offered, "instruction": instruction})
        assert (offered[answer.tool - 1]["name"] if answer.tool else None) == right, answer.reason


def test_an_unknown_answer_is_refused_with_what_is_known():
    class Sonnet(BaseModel):
        lines: list[str]

    with pytest.raises(LLMError, match=r"Sonnet.*CallArguments, IncompleteRequest"):
        ask("generator", Sonnet, {})


_LEAF = st.sampled_from(
    [
        {"type": "string"}, {"type": ["string", "null"]}, {"type": "integer", "maximum": -3},
        {"type": "number", "multipleOf": 0.5}, {"enum": [1, "two", None]}, {"const": "fixed"}, {},
        True, {"type": "array"}, {"type": "object"}, {"$ref": "#/$defs/none"}, {"format": "uuid"},
        {"type": "array", "items": {"type": "string"}, "minItems": 2}, {"type": "boolean"},
        {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 2}]}, {"type": "null"},
        {"type": "string", "pattern": "^[A-Z]{3}$"}, {"type": 7}, {"properties": {"a": {}}},
    ]
)  # fmt: skip
_TOOL = st.fixed_dictionaries(
    {
        "name": st.text(min_size=1, max_size=16).filter(str.strip),
        "description": st.one_of(st.none(), st.text(max_size=80)),
        "properties": st.dictionaries(st.text(min_size=1, max_size=10), _LEAF, max_size=4),
    }
)


@settings(max_examples=40, deadline=None)
@given(tools=st.lists(_TOOL, min_size=1, max_size=3), seed=st.integers(0, 9), text=st.text())
def test_no_odd_contract_leaves_a_role_without_an_answer(tools, seed, text):
    offered = [make_tool(*t.values(), *t["properties"]) for t in tools]
    of = offered[0]
    meta = {"contract": of, "count": 2, "rivals": offered[1:]}
    answer = ask("generator", RequestDrafts, meta, seed)
    values = answer.requests[0].values
    ask("generator", MultiCallRequest, {"contracts": offered}, seed)
    ask("generator", ToollessRequest, {"contracts": offered}, seed)
    for name in [*tools[0]["properties"], "no_such"]:
        ask("generator", IncompleteRequest, {"contract": of, "parameter": name}, seed)
    about = {"contract": of, "instruction": text or "x", "values": values}
    ask("reviser", RewrittenRequest, {**about, "absent": ["x.y[0]"]}, seed)
    ask("evolver", RewrittenRequest, {**about, "direction": text}, seed)
    ask("caller", CallArguments, {**about, "wrong": {"a": 1}, "error": text}, seed)
    for role in ("checker_a", "checker_b"):
        choice = ask(role, ToolChoice, {"contracts": offered, "instruction": text})
        assert 0 <= choice.tool <= len(offered)


def test_nearly_every_required_value_is_in_the_words_and_kinds_come_in_the_order_asked_for():
    requests = [
        (of, item["instruction"], item["values"]) for of in CONTRACTS for item in draft(of, 3, 20)
    ]
    lines = sum(grounded(*request) for request in requests)
    assert lines / len(requests) >= 0.95, (lines, len(requests))
    assert sum(find_parroting(*request) is not None for request in requests) / len(requests) <= 0.1
    profile = {"persona": "a nurse", "tone": "polite", "language": "de", "difficulty": "1"}
    kinds = ["implicit", "direct", "direct"]
    answer = draft(READ, 3, range(3, 4), kinds=kinds, profiles=[profile])
    assert [item["kind"] for item in answer] == kinds
    assert {item["language"] for item in answer} == {"en"}  # German was asked for; none is claimed
    assert all("please" in d["instruction"].lower() or "thank" in d["instruction"].lower()
               or "grateful" in d["instruction"] for d in answer)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_several_calls_are_valid_and_all_in_the_words(seed):
    for first in CONTRACTS:
        for offered in ([first, ISSUE], [READ, first]):
            answer = ask("generator", MultiCallRequest, {"contracts": offered}, seed)
            assert len(answer.calls) == 2
            for step in answer.calls:
                of = offered[step.tool - 1]
                assert validate_call(of, step.arguments) == []
                assert grounded(of, answer.instruction, step.arguments, step.borrowed)


def test_the_same_tool_twice_is_asked_for_two_things():
    answer = ask("generator", MultiCallRequest, {"contracts": [READ], "shape": "parallel"})
    assert [step.tool for step in answer.calls] == [1, 1]
    assert answer.calls[0].arguments["path"] != answer.calls[1].arguments["path"]
    assert all(step.arguments["path"] in answer.instruction for step in answer.calls)


@pytest.mark.parametrize("seed", range(10))
def test_an_aside_is_served_by_no_tool_and_answered_without(seed):
    answer = ask("generator", ToollessRequest, {"contracts": CONTRACTS, "profile": {}}, seed)
    assert choose_tool(CONTRACTS, answer.instruction)[0] == 0
    assert "{" not in answer.instruction + answer.reply


def test_sums_in_asides_are_right_and_kept_from_calculators():
    calculator = canonicalize_contract({"name": "calculate", "inputSchema": {"type": "object"},
                                        "description": "Adds and multiplies numbers"})  # fmt: skip
    for seed in range(60):
        other = ask("generator", ToollessRequest, {"contracts": [READ]}, seed)
        if " times " in other.reply:
            a, b, c = (int(n) for n in re.findall(r"\d+", other.reply))
            assert a * b == c
        of_sums = ask("generator", ToollessRequest, {"contracts": [calculator]}, seed)
        assert not any(char.isdigit() for char in of_sums.instruction)


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
@pytest.mark.parametrize("seed", range(4))
def test_a_vague_request_lacks_what_its_answer_states(of, seed):
    for slot in (slot for slot in read_slots(of) if slot.required):
        answer = ask("generator", IncompleteRequest, {"contract": of, "parameter": slot.name}, seed)
        assert slot.name in find_absent(of, answer.instruction, answer.values), answer
        assert grounded(of, f"{answer.instruction}\n{answer.answer}", answer.values), answer
        assert answer.question.endswith("?")
        assert validate_call(of, answer.values) == []


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
def test_the_reviser_says_what_the_request_lacks(of):
    for seed in range(6):
        drafted = draft(of, 3, range(seed, seed + 1))[seed % 3]
        meta = {
            "contract": of, "instruction": "Could you do this for me?",
            "values": drafted["values"], "absent": list(drafted["values"]),
        }  # fmt: skip
        answer = ask("reviser", RewrittenRequest, meta, seed)
        assert answer.values == drafted["values"]
        assert grounded(of, answer.instruction, answer.values), answer
    nobodys = {"contract": READ, "instruction": "Read it.", "values": {}, "absent": ["path"]}
    answer = ask("reviser", RewrittenRequest, nobodys)
    assert answer.values["path"] in answer.instruction


@cases("direction", "add a constraint", "deepen: a reason", "context", "", "?")
@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
def test_evolution_adds_ten_to_twenty_words_and_loses_nothing(of, direction):
    for seed in range(3):
        [drafted] = draft(of, 1, range(seed, seed + 1))
        meta = {**drafted, "contract": of, "direction": direction}
        answer = ask("evolver", RewrittenRequest, meta, seed)
        added = len(answer.instruction.split()) - len(drafted["instruction"].split())
        assert 10 <= added <= 20, answer.instruction
        assert answer.values == drafted["values"]
        assert grounded(of, answer.instruction, answer.values)
        assert set(verify(of, answer.instruction, answer.values).kinds) <= {"copies_description"}
