# ruff: noqa: E501  (tables of texts read better unbroken)
"""Texts and calls written to hang the rules, to exhaust them, or to make them raise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.tables import TASKS
from assets.synthesis.verify.grading import MOST_LEAVES, grade_value, walk_leaves
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import verify, verify_row
from assets.synthesis.verify.words import STATED
from tests.support.examples import examples
from tests.synthesis.contracts import ALL, CITY_TIME, CONVERT

Json = Any
OPEN = {
    "name": "note",
    "description": "Keep a note",
    "inputSchema": {"type": "object", "properties": {"a": {}}},
}
VERDICTS = {"accept", "unsure", "reject"}


def nested(depth: int, inner: Json = "x") -> Json:
    for _ in range(depth):
        inner = [inner]
    return inner


MEGABYTE = 1_000_000
TEXTS = {
    "digits": "7" * MEGABYTE, "numbers": "1,2 " * 250_000, "words": "twenty " * 140_000,
    "commas": "1," * 500_000, "month": "9 june " * 140_000, "dates": "2025-06-09 " * 90_000,
    "han": "三百" * 300_000, "hangul": "두 " * 300_000, "marks": "e\u0301" * 300_000,
    "half": "a b and a half " * 60_000, "point": "one point " * 100_000, "from": "from a to b " * 80_000,
    "surrogates": "\ud800" * 1000, "controls": "\0\x1b" * 1000, "joiners": "a\u200d" * 100_000,
    "identifiers": "a_b_" * 200_000, "steps": "15m " * 200_000, "powers": "1e9" * 300_000,
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_megabyte_of_anything_gets_a_verdict(name: str) -> None:
    text = TEXTS[name]
    call = {
        "from_city": "a",
        "to_city": "b",
        "when": "2025-06-09",
        "n": 7,
        "step": "15m",
        "a": text,
    }
    assert verify(OPEN, text, call).verdict == "reject"
    assert verify({**OPEN, "description": text}, "Keep a note of it", {"a": 1}).verdict in VERDICTS
    found = verify_row({"task": "single", "contract_digest": "a", "instruction": text}, {"a": OPEN})
    assert found.verdict == "reject"


CALLS = {
    "ten thousand elements": {"a": list(range(10_000))},
    "ten thousand words": {"a": [f"w{n}" for n in range(10_000)]},
    "ten thousand names": {f"p{n}": n for n in range(10_000)},
    "deep list": {"a": nested(5_000)},
    "deep object": {"a": json.loads('{"a":' * 400 + "1" + "}" * 400)},
    "a megabyte": {"a": "word 9 " * 150_000},
    "huge number": {"a": 10**5000}, "tiny": {"a": 5e-324}, "infinite": {"a": float("inf")},
    "nan": {"a": float("nan")}, "epoch": {"a": 10**12 + 0.5}, "zeros": {"a": "0" * 5000},
    "names": {"": 1, "\ud800": 2, "a" * 100_000: 3, ".[0]": 4},
    "dates": {"a": ["2025-02-31", "9999-99-99", "0000-00-00", "2025-06", "00000101"]},
    "odd": {"a": [None, True, "", " ", "*", "é", "\0", [], {}, [[]], {"": {}}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_no_call_stops_the_rules(name: str) -> None:
    text = "Keep a note of 12 words from a to b by the ninth of June 2025, please."
    for contract in (OPEN, CITY_TIME):
        assert verify(contract, text, CALLS[name]).verdict in VERDICTS


SCHEMAS: list[Json] = [
    None, [], "x", {}, {"properties": []}, {"properties": {"a": []}}, {"required": 7},
    {"required": [["a"], 7, None], "properties": {"a": True}}, {"required": {"a": 1}},
    {"properties": {"a": {"enum": 7, "default": [], "items": 3, "properties": []}}},
    {"properties": {"a": {"enum": [{"x": []}, None, 1.5]}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_no_schema_stops_the_rules(schema: Json) -> None:
    for contract in (
        {"inputSchema": schema},
        {"name": 7, "description": [], "inputSchema": schema},
    ):
        for call in ({"a": "b"}, {"a": [1]}, [], None, 7, "a"):
            assert verify(contract, "Keep a note of b, please", call).verdict in VERDICTS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@examples(150)
@given(
    st.sampled_from([*ALL, OPEN]),
    st.text(max_size=200),
    st.dictionaries(st.text(), JSON, max_size=4),
)
def test_verify_never_raises(contract: Json, text: str, call: Json) -> None:
    declared = list((contract["inputSchema"].get("properties") or {}).keys())
    named = dict(zip(declared, call.values(), strict=False))
    for arguments in (call, named):
        assert verify(contract, text, arguments, server=text[:9]).verdict in VERDICTS


@examples(150)
@given(
    st.sampled_from([*TASKS, "x", None]),
    st.dictionaries(
        st.sampled_from(["messages", "calls", "offered", "contract_digest", "instruction"]),
        JSON | JSON.map(lambda value: json.dumps(value, default=str)),
    ),
)
def test_verify_row_never_raises(task: Json, columns: dict[str, Json]) -> None:
    row = {"task": task, "contract_digest": "a", "instruction": "Keep a note", **columns}
    assert verify_row(row, {"a": OPEN, "b": CONVERT}).verdict in VERDICTS


def test_of_very_many_leaves_the_first_are_read() -> None:
    leaves = list(walk_leaves({"a": list(range(100_000))}))
    assert len(leaves) == MOST_LEAVES
    assert leaves[:2] == [("a[0]", 0), ("a[1]", 1)]


def test_what_stands_late_in_a_long_text_is_not_read_without_end() -> None:
    assert grade_value("quartz", {}, "name", RequestText("word " * 2000 + "quartz")) == STATED
    assert grade_value("quartz", {}, "name", RequestText("word " * 200_000 + "quartz")) != STATED
