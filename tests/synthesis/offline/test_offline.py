"""The offline generator: valid, grounded, varied, reproducible, honest, and not an echo."""

import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import ParameterSlot, read_purpose, read_slots
from assets.synthesis.offline.invented_values import find_sort, make_from_pattern
from assets.synthesis.offline.provider import answer_requests
from assets.synthesis.verify.rules import verify
from tests.support.examples import examples
from tests.synthesis.contracts import ALL, CITY_TIME, CREATE_ISSUE, READ_FILE

CONTRACTS = [canonicalize_contract(tool) for tool in ALL]


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_call_fits_its_contract_and_every_value_is_in_the_text(of: dict, seed: int) -> None:
    for request in answer_requests({"contract": of, "count": 6}, seed)["requests"]:
        assert validate_call(of, request["values"]) == []
        found = verify(of, request["instruction"], request["values"], server="npm:demo-server")
        kinds = set(found.kinds) - {"copies_description"}
        assert not kinds, (request, found.findings)


def test_the_same_seed_makes_the_same_requests_and_another_seed_others() -> None:
    of = canonicalize_contract(READ_FILE)
    first, again = (answer_requests({"contract": of, "count": 3}, 7) for _ in range(2))
    assert json.dumps(first) == json.dumps(again)
    assert first != answer_requests({"contract": of, "count": 3}, 8)


_MADE_ELSEWHERE = """
import random
import re
from assets.synthesis.offline.invented_values import invent_value
sorts = "person company city address username email ip timezone currency language job isbn iban"
rng = random.Random(5)
print([invent_value(sort, rng) for sort in sorts.split() for _ in range(25)])
"""


def test_values_do_not_depend_on_the_process_that_draws_them() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", _MADE_ELSEWHERE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_requests_of_one_tool_differ_in_words_and_values() -> None:
    of = canonicalize_contract(READ_FILE)
    made = [
        r
        for seed in range(10)
        for r in answer_requests({"contract": of, "count": 3}, seed)["requests"]
    ]
    assert len({r["instruction"] for r in made}) == len(made)
    assert len({r["values"]["path"] for r in made}) > 20
    assert {r["kind"] for r in made} == {"direct", "detailed", "implicit"}


def test_required_values_are_always_there_and_optional_ones_sometimes() -> None:
    of = canonicalize_contract(CREATE_ISSUE)
    made = [
        r
        for seed in range(12)
        for r in answer_requests({"contract": of, "count": 3}, seed)["requests"]
    ]
    assert all({"project_key", "title", "priority"} <= r["values"].keys() for r in made)
    optional = [len(r["values"]) > 3 for r in made]
    assert any(optional)
    assert not all(optional)


@pytest.mark.parametrize(
    ("name", "description", "verb", "rest"),
    [
        ("get_sum", "Returns the sum of two numbers", "return", "the sum of two numbers"),
        ("x", "This tool allows you to search the web for news.", "search", "the web for news"),
        ("x", "Tool for listing open invoices", "list", "open invoices"),
        ("git_status", "", "get", "git status"),
        ("jira_get_issue", "", "get", "issue in jira"),
        ("demote_members", "Demote members of a group", "demote", "members of a group"),
        ("weather", "根据城市查询天气", "get", "weather"),
        ("read", "Read a page and return its text as JSON", "read", "a page"),
    ],
)
def test_the_purpose_is_read_from_description_or_name(
    name: str, description: str, verb: str, rest: str
) -> None:
    found = read_purpose({"name": name, "description": description})
    assert (found.verb, found.rest) == (verb, rest)


def test_slots_resolve_references_and_nullable_unions() -> None:
    by_name = {slot.name: slot for slot in read_slots(canonicalize_contract(CREATE_ISSUE))}
    assert by_name["estimate"].type == "integer"
    assert [slot.required for slot in by_name.values()][:3] == [True] * 3


def test_values_quoted_in_the_description_are_used() -> None:
    drawn = {
        answer_requests({"contract": canonicalize_contract(CITY_TIME), "count": 1}, n)["requests"][
            0
        ]["values"]["timezone"]
        for n in range(40)
    }
    assert {"America/New_York", "Europe/London"} <= drawn


@pytest.mark.parametrize("pattern", [r"^[A-Z]{2}-\d{3}$", r"^(open|done)$", r"^#[0-9a-f]{6}$"])
def test_a_simple_pattern_is_met(pattern: str) -> None:
    import re

    made = make_from_pattern(pattern, random.Random(1))
    assert made is not None
    assert re.fullmatch(pattern, made)


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
def test_any_contract_gets_valid_calls_and_text(
    properties: dict, name: str, description: str, seed: int
) -> None:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    of = canonicalize_contract({"name": name, "description": description, "inputSchema": schema})
    for request in answer_requests({"contract": of, "count": 3}, seed)["requests"]:
        assert request["instruction"].strip()
        assert validate_call(of, request["values"]) == []


@pytest.mark.parametrize(
    ("name", "description", "form"),
    [
        ("from", "Start date (YYYY-MM-DD)", r"\d{4}-\d\d-\d\d"),
        ("id", "The UUID of the object to retrieve.", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ("query", "The SQL query to dry run", r"(?s)(?i:select|with|insert|update|delete)\b.*"),
    ],
)
def test_a_value_has_the_form_that_its_description_states(
    name: str, description: str, form: str
) -> None:
    of = {
        "name": "look_up",
        "description": "Look something up.",
        "inputSchema": {
            "type": "object",
            "properties": {name: {"type": "string", "description": description}},
            "required": [name],
        },
    }
    for seed in range(3):
        for request in answer_requests({"contract": of, "count": 6}, seed)["requests"]:
            assert re.fullmatch(form, request["values"][name]), request


@pytest.mark.parametrize(
    "description",
    [
        "The context for generating the SQL statement.",
        "Default type, of integer, string, uuid",
        "Database to run the SQL query in",
        "Phone number with country code",
        "Output format; dates are shown as YYYY-MM-DD",
    ],
)
def test_a_form_that_a_description_only_mentions_is_not_the_values(description: str) -> None:
    slot = ParameterSlot(
        "name", {"type": "string"}, required=True, words=("name",), hint=description
    )
    assert find_sort(slot) == find_sort(replace(slot, hint=""))
