"""Exercises: every call is valid by its tool's schema, and a request states what it calls."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from tests.support.examples import examples
from training.caller.tiny.build import (
    TinyRecipe,
    compute_max_tools,
    compute_rate_share,
    digest_data,
    make_batches,
    split_servers,
)
from training.caller.tiny.corpus import (
    ExerciseShares,
    InventedTool,
    make_exercise,
    make_servers,
    split_name,
    write_request,
)

SMALL = TinyRecipe(
    servers=12, held_out=3, echo_steps=3, steps=8, tokens=600, echo_tokens=100, echo_share=0.0
)


@pytest.fixture(scope="module")
def servers() -> list[list[InventedTool]]:
    return make_servers(3, 20)


@given(seed=st.integers(0, 10_000))
@examples(60)
def test_a_call_is_valid_by_its_schema_and_its_values_are_said(
    servers: list[list[InventedTool]], seed: int
) -> None:
    rng = random.Random(seed)
    tool = rng.choice(rng.choice(servers))
    request, call = write_request(rng, tool)
    assert call["name"] == tool.contract["name"]
    assert validate_call(dict(tool.contract), call["arguments"]) == []
    for value in call["arguments"].values():
        if isinstance(value, str):
            assert value.lower() in request.lower()


@given(seed=st.integers(0, 10_000), most=st.integers(1, 10))
@examples(60)
def test_an_exercise_calls_tools_that_it_shows(
    servers: list[list[InventedTool]], seed: int, most: int
) -> None:
    made = make_exercise(random.Random(seed), servers, most)
    shown = {tool["name"]: tool for tool in made.tools}
    assert 1 <= len(shown) == len(made.tools) <= most
    assert made.request
    for call in made.calls:
        assert validate_call(dict(shown[call["name"]]), call["arguments"]) == []


def test_an_exercise_is_a_function_of_its_seed(servers: list[list[InventedTool]]) -> None:
    made = [make_exercise(random.Random(seed), servers, 5) for seed in (5, 5, 6)]
    assert made[0] == made[1] != made[2]


def test_there_are_requests_that_no_tool_fits_and_requests_for_two(
    servers: list[list[InventedTool]],
) -> None:
    often = ExerciseShares(none=0.4, several=0.3)
    made = [make_exercise(random.Random(seed), servers, 4, often) for seed in range(30)]
    assert {len(each.calls) for each in made} == {0, 1, 2}


def test_names_are_said_as_words() -> None:
    assert split_name("issueKey_of-all") == "issue key of all"


def test_a_tool_is_learned_from_or_held_out() -> None:
    learned, held = split_servers(SMALL)
    names = [{tool.contract["name"] for own in part for tool in own} for part in (learned, held)]
    assert len(held) == 3
    assert names[0]
    assert not names[0] & names[1]


def test_a_batch_depends_on_its_step_alone() -> None:
    learned, _ = split_servers(SMALL)
    whole = list(make_batches(SMALL, learned))
    assert len(whole) == 8
    assert list(make_batches(SMALL, learned, 5)) == whole[5:]
    assert isinstance(whole[2][0], list)
    assert not isinstance(whole[3][0], list)


def test_the_data_has_a_digest_of_its_own() -> None:
    assert digest_data(SMALL) == digest_data(replace(SMALL, learning_rate=1.0))
    assert digest_data(SMALL) != digest_data(replace(SMALL, seed=8))


def test_tools_grow_from_one_to_all_and_the_rate_falls() -> None:
    recipe = TinyRecipe(steps=100, echo_steps=20, growing=0.5, warmup=10)
    counts = [compute_max_tools(step, recipe) for step in range(100)]
    assert counts == sorted(counts)
    assert (counts[0], counts[20], counts[59], counts[60], counts[-1]) == (1, 1, 9, 10, 10)
    rates = [compute_rate_share(step, recipe) for step in range(100)]
    assert rates[0] == 0.1
    assert rates[9] == rates[50] == 1.0
    assert rates[-1] == 0.05
