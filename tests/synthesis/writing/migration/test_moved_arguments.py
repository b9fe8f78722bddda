"""A call carried over to the next version of its contract: the same values, or not at all."""

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.writing.migration.moved_arguments import (
    Unmovable,
    find_renamed_parameters,
    rewrite_arguments,
)
from tests.contracts.random_schemas import next_version as any_version
from tests.contracts.random_schemas import value_for, whole
from tests.support.examples import examples
from tests.synthesis.contract_versions import BREAKING, COMPATIBLE, called, next_version, tool

STRING = {"type": "string"}


def scalars(value: Any) -> Counter[str]:
    if isinstance(value, dict) and value:
        return sum((scalars(item) for item in value.values()), Counter())
    if isinstance(value, list) and value:
        return sum((scalars(item) for item in value), Counter())
    return Counter([json.dumps(value)])


@given(called(), st.sampled_from(COMPATIBLE), st.data())
@examples(300)
def test_a_compatible_change_moves_every_call(made: Any, change: str, data: Any) -> None:
    raw, arguments = made
    name = data.draw(st.sampled_from(sorted(raw["inputSchema"]["properties"])))
    old, new = canonicalize_contract(raw), canonicalize_contract(next_version(raw, change, name))
    moved = rewrite_arguments(old, new, arguments)
    assert validate_call(new, moved) == []
    assert scalars(moved) == scalars(arguments)
    again = old if change in ("option", "described", "tool") else new
    assert rewrite_arguments(new, again, moved) == moved


@given(called(), st.sampled_from(BREAKING), st.data())
@examples(300)
def test_a_breaking_change_moves_no_call_that_it_touches(made: Any, change: str, data: Any) -> None:
    raw, arguments = made
    if change != "required" and not arguments:
        return
    name = data.draw(st.sampled_from(sorted(arguments or raw["inputSchema"]["properties"])))
    old, new = canonicalize_contract(raw), canonicalize_contract(next_version(raw, change, name))
    with pytest.raises(Unmovable):
        rewrite_arguments(old, new, arguments)


@given(st.integers(0, 2**32))
@examples(400)
def test_whatever_the_schemas_a_moved_call_is_valid_and_says_the_same(seed: int) -> None:
    rng = Random(seed)
    old = {"name": "t", "inputSchema": whole(rng)}
    new = {"name": "t", "inputSchema": any_version(old["inputSchema"], rng)}
    arguments = value_for(old["inputSchema"], old["inputSchema"], rng)
    if not isinstance(arguments, dict) or validate_call(old, arguments):
        return
    try:
        moved = rewrite_arguments(old, new, arguments)
    except Unmovable:
        return
    assert validate_call(new, moved) == []
    assert scalars(moved) == scalars(arguments)


def case(before: dict[str, Any], after: dict[str, Any], arguments: dict[str, Any]) -> Any:
    return rewrite_arguments(
        canonicalize_contract(tool(before, [])), canonicalize_contract(tool(after, [])), arguments
    )


@pytest.mark.parametrize(
    ("before", "after", "arguments", "moved"),
    [
        ({"userId": STRING}, {"user_id": STRING}, {"userId": "7"}, {"user_id": "7"}),
        ({"lang": {**STRING, "description": "Language of the text"}},
         {"locale": {**STRING, "description": "language of the text."}}, {"lang": "de"},
         {"locale": "de"}),
        ({"path": {**STRING, "description": "Where the file lies on disk"}},
         {"file_path": {**STRING, "description": "Where the file lies on disk"}},
         {"path": "/a"}, {"file_path": "/a"}),
        ({"n": {"type": "integer"}}, {"n": {"type": "number"}}, {"n": 5}, {"n": 5}),
        ({"meta": {"type": "object"}}, {"meta": {"type": "object", "properties": {"a": STRING}}},
         {"meta": {"a": "x"}}, {"meta": {"a": "x"}}),
    ],
)  # fmt: skip
def test_where_it_is_plain_a_value_moves(
    before: Any, after: Any, arguments: Any, moved: Any
) -> None:
    assert case(before, after, arguments) == moved


@pytest.mark.parametrize(
    ("before", "after", "arguments"),
    [
        ({"start_date": STRING}, {"end_date": STRING}, {"start_date": "2024-01-02"}),
        ({"min_price": STRING}, {"max_price": STRING}, {"min_price": "3"}),
        ({"price": STRING}, {"max_price": STRING}, {"price": "3"}),
        ({"id": STRING}, {"parent_id": STRING}, {"id": "3"}),
        ({"id": STRING}, {"owner_id": STRING}, {"id": "3"}),
        ({"timeout_seconds": {"type": "integer"}}, {"timeout_ms": {"type": "integer"}},
         {"timeout_seconds": 3}),
        ({"timeout": {"type": "integer", "description": "Time in seconds"}},
         {"timeout": {"type": "integer", "description": "Time in milliseconds"}}, {"timeout": 3}),
        ({"city": STRING}, {"country": STRING}, {"city": "Oslo"}),
        ({"q": STRING}, {"query": STRING}, {"q": "x"}),
        ({"label": STRING}, {"labels": {"type": "array", "items": STRING}}, {"label": "bug"}),
        ({"options": {"type": "object", "properties": {"depth": {"type": "integer"}}}},
         {"depth": {"type": "integer"}}, {"options": {"depth": 2}}),
        ({"from": {**STRING, "description": "Code of the airport"}},
         {"to": {**STRING, "description": "Code of the airport"}}, {"from": "OSL"}),
        ({"wait": {"type": "integer", "description": "Time to wait"}},
         {"wait_ms": {"type": "integer", "description": "Time to wait"}}, {"wait": 3}),
        ({"name": STRING}, {"author": {"type": "object", "properties": {"name": STRING}}},
         {"name": "Ada"}),
        ({"tags": STRING}, {"tags": {"type": "array", "items": STRING}}, {"tags": "a,b"}),
        ({"tag": STRING}, {"tag": {"type": "array", "items": {"type": "integer"}}}, {"tag": "a"}),
        ({"repo": {**STRING, "description": "Name of the repository"}},
         {"org": {**STRING, "description": "Name of the organization"}}, {"repo": "x"}),
        ({"userId": STRING}, {"user_id": STRING, "userID": STRING}, {"userId": "1"}),
        ({"a": STRING}, {"b": STRING}, {"a": "x"}),
    ],
)  # fmt: skip
def test_where_it_may_be_something_else_nothing_moves(
    before: Any, after: Any, arguments: Any
) -> None:
    with pytest.raises(Unmovable):
        case(before, after, arguments)


def test_each_place_is_given_once() -> None:
    before = tool({"userId": STRING, "noteText": STRING}, [])["inputSchema"]
    after = tool({"user_id": STRING, "note_text": STRING}, [])["inputSchema"]
    assert find_renamed_parameters(before, after) == {"userId": "user_id", "noteText": "note_text"}
    several = tool({"user_id": STRING, "userID": STRING}, [])["inputSchema"]
    assert find_renamed_parameters(before, several) == {}
