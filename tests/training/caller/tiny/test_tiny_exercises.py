"""Exercises: every call is valid by its tool's schema, and states what it calls."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from tests.support.examples import examples
from training.caller.tiny.exercises import (
    Material,
    Shares,
    exercise,
    moved,
    request,
    reshaped,
    spoken,
    written,
)


@pytest.fixture(scope="module")
def material(train_rows: list[dict[str, Any]]) -> Material:
    contracts = {row["contract_digest"]: json.loads(row["contract"]) for row in train_rows}
    return Material.of(contracts, train_rows)


_LEAVES = st.one_of(
    st.just({"type": "string"}),
    st.just({"type": "integer"}),
    st.just({"type": "boolean"}),
    st.builds(lambda low: {"type": "number", "minimum": low}, st.integers(-5, 5)),
    st.builds(lambda o: {"enum": o}, st.lists(st.text("abc", min_size=1), min_size=1, max_size=3)),
    st.just({"type": "array", "items": {"type": "string"}}),
)
_SCHEMAS = st.dictionaries(st.text("abcXY_", min_size=1, max_size=8), _LEAVES, max_size=4)


@given(properties=_SCHEMAS, needed=st.integers(0, 4), seed=st.integers(0, 99))
@examples(80)
def test_a_written_call_is_valid_by_its_schema(
    properties: dict[str, Any], needed: int, seed: int
) -> None:
    schema = {"type": "object", "properties": properties, "required": [*properties][:needed]}
    tool = {"name": "do_it", "description": "Does it.", "inputSchema": schema}
    made = written(random.Random(seed), tool, ["word"])
    if made is not None:
        text, call = made
        assert text
        assert call["name"] == "do_it"
        assert validate_call(tool, call["arguments"]) == []
    without = {"name": "do_it", "inputSchema": {"type": "object", "properties": {}}}
    assert written(random.Random(seed), without, ["word"]) is not None


@given(seed=st.integers(0, 10_000))
@examples(60)
def test_an_exercise_calls_tools_that_it_shows(material: Material, seed: int) -> None:
    tools, rounds = exercise(random.Random(seed), material, 6, 3)
    shown = {tool["name"]: tool for tool in tools}
    assert 2 <= len(shown) == len(tools) <= 6
    for text, calls in rounds:
        assert text
        for call in calls:
            assert validate_call(shown[call["name"]], call["arguments"]) == []


def test_an_exercise_is_a_function_of_its_seed(material: Material) -> None:
    made = [exercise(random.Random(5), material, 5, 4) for _ in range(2)]
    assert made[0] == made[1] != exercise(random.Random(6), material, 5, 4)


def test_a_moved_pair_states_its_new_values(material: Material) -> None:
    name, pairs = next(iter(material.pairs.items()))
    tool = next(tool for tool in material.contracts if tool["name"] == name)
    seen = set()
    for seed in range(30):
        text, call = moved(random.Random(seed), tool, pairs[0], material.words)
        assert call["arguments"]["title"] in text
        assert str(call["arguments"]["count"]) in text
        seen.add(call["arguments"]["title"])
    assert len(seen) > 10


def test_a_bound_value_is_not_moved() -> None:
    schema = {"properties": {"unit": {"type": "string", "enum": ["mg", "kg"]}}}
    pair = {"said": "in mg please", "arguments": {"unit": "mg"}}
    tool = {"name": "weigh", "inputSchema": schema}
    for seed in range(20):
        assert moved(random.Random(seed), tool, pair, ["word"]) == (
            "in mg please",
            {"name": "weigh", "arguments": {"unit": "mg"}},
        )


@given(value=st.from_regex(r"[A-Za-z0-9/_.:@ -]{1,20}", fullmatch=True), seed=st.integers(0, 99))
def test_a_reshaped_value_keeps_its_shape(value: str, seed: int) -> None:
    import re

    made = reshaped(random.Random(seed), value, ["word", "other"])
    assert re.sub(r"[A-Za-z]+", "a", made) != "" or value == ""
    assert re.sub(r"[A-Za-z]+|[0-9]+", "", made) == re.sub(r"[A-Za-z]+|[0-9]+", "", value)
    assert [len(n) for n in re.findall(r"[0-9]+", made)] == [
        len(n) for n in re.findall(r"[0-9]+", value)
    ]


def test_there_are_requests_that_no_tool_fits_and_requests_for_two(material: Material) -> None:
    kinds = set()
    often = Material(
        material.contracts, material.pairs, material.beside, material.words,
        Shares(none=0.4, several=0.3),
    )  # fmt: skip
    for seed in range(30):
        tools, rounds = exercise(random.Random(seed), often, 4, 3)
        kinds |= {len(calls) for _, calls in rounds}
        assert all(calls or tools for _, calls in rounds)
    assert kinds == {0, 1, 2}


def test_rows_without_one_right_call_teach_nothing(train_rows: list[dict[str, Any]]) -> None:
    contracts = {row["contract_digest"]: json.loads(row["contract"]) for row in train_rows}
    none = [{**row, "arguments": None, "calls": "[]"} for row in train_rows]
    two = [{**row, "calls": json.dumps([{}, {}])} for row in train_rows]
    assert Material.of(contracts, none).pairs == {}
    assert Material.of(contracts, two).pairs == {}
    assert request(random.Random(1), next(iter(contracts.values())), Material.of(contracts))


def test_names_are_said_as_words() -> None:
    assert spoken("issueKey_of-all") == "issue key of all"
