"""Candidates are fixed per row, prompts go through the template, calls are read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.render import BadTemplate, candidates, parse_call, render, tool_schema
from training.tiny import TinySettings, _tokenizer


def pool_of(rows: list[dict]) -> dict[str, dict]:
    return {row["contract_digest"]: json.loads(row["contract"]) for row in rows}


def test_candidates_hold_the_right_tool_once_and_repeat(train_rows: list[dict]) -> None:
    pool = pool_of(train_rows)
    for row in train_rows:
        chosen = candidates(row, pool, 4)
        names = [contract["name"] for contract in chosen]
        assert names.count(row["tool"]) == 1
        assert len(set(names)) == 4
        assert chosen == candidates(row, pool, 4)


def test_look_alikes_are_among_the_candidates(train_rows: list[dict]) -> None:
    row = train_rows[0]
    names = {contract["name"] for contract in candidates(row, pool_of(train_rows), 4, hard=2)}
    near = [pool_of(train_rows)[name]["name"] for name in json.loads(row["negatives"])[:2]]
    assert set(near) <= names


def test_a_small_pool_gives_fewer_candidates(train_rows: list[dict]) -> None:
    row = {**train_rows[0], "negatives": "[]"}
    pool = {row["contract_digest"]: json.loads(row["contract"])}
    assert len(candidates(row, pool, 10)) == 1


def test_the_place_of_the_right_tool_varies(train_rows: list[dict]) -> None:
    pool = pool_of(train_rows)
    places = {
        [c["name"] for c in candidates(row, pool, 4)].index(row["tool"]) for row in train_rows
    }
    assert places == {0, 1, 2, 3}


def test_a_short_schema_keeps_required_parameters_only(train_rows: list[dict]) -> None:
    contract = json.loads(train_rows[0]["contract"])
    contract["inputSchema"]["required"] = ["title"]
    short = tool_schema(contract, 3)["function"]
    assert list(short["parameters"]["properties"]) == ["title"]
    assert len(short["description"].split()) == 3
    assert tool_schema(contract)["function"]["parameters"] == contract["inputSchema"]


def test_the_tiny_template_gives_prompt_and_call(train_rows: list[dict]) -> None:
    tokenizer = _tokenizer([row["positive"] for row in train_rows], TinySettings(vocabulary=400))
    tools = [tool_schema(json.loads(train_rows[0]["contract"]), 5)]
    call = {"name": "find_file", "arguments": {"title": 'a "b" ü', "count": 2}}
    prompt, completion = render(tokenizer, tools, "find it", call)
    assert prompt.endswith("<|user|>find it<|call|>")
    assert parse_call(completion) == call
    ids = tokenizer(prompt + completion, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == prompt + completion
    assert ids[-1] == tokenizer.eos_token_id
    assert render(tokenizer, tools, "find it") == (prompt, "")


def test_a_tokenizer_without_a_template_is_refused() -> None:
    class Bare:
        chat_template = None
        name_or_path = "bare"

    with pytest.raises(BadTemplate, match="bare: no chat template"):
        render(Bare(), [], "hello")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "a", "arguments": {"x": 1}}', {"name": "a", "arguments": {"x": 1}}),
        ('Sure! <call>\n{"name": "a", "arguments": {}}\n</call>', {"name": "a", "arguments": {}}),
        ('```json\n{"name": "a"}\n```', {"name": "a", "arguments": {}}),
        ('{"name": "a", "arguments": "no"}', {"name": "a", "arguments": {}}),
        ('{"x": 1} {"name": "b", "arguments": {}}', {"name": "b", "arguments": {}}),
        ('{"name": "a", "arguments": {"x": ', None),
        ("I cannot help with that.", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_call_is_read_out_of_model_text(text: str, expected: dict | None) -> None:
    assert parse_call(text) == expected


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = parse_call("{" + text)
    assert found is None or isinstance(found["name"], str)
