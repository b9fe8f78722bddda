"""The offline caller, checkers and actor, and every role over odd contracts."""

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.offline.provider import OfflineProvider
from assets.synthesis.role_schemas import (
    CallArguments,
    IncompleteRequest,
    MultiCallRequest,
    RequestDrafts,
    RewrittenRequest,
    ToolChoice,
    ToollessRequest,
    ToolReply,
)
from tests.synthesis.contracts import CITY_TIME, CONVERT, ODD, PING
from tests.synthesis.offline_ask import CONTRACTS, ask
from warehouse.llm.client import LLMError, ModelRequest, Role


def test_the_caller_gives_the_values_and_repairs_wrong_ones() -> None:
    of, values = (
        canonicalize_contract(CONVERT),
        {"amount": 5, "source_currency": "EUR", "target_currency": "SEK"},
    )
    assert ask("caller", CallArguments, {"contract": of, "values": values}).arguments == values
    wrong = {"amount": "5", "source_currency": "EUR", "to": "SEK"}
    meta = {"contract": of, "values": values, "wrong": wrong, "error": "amount is not a number"}
    assert ask("caller", CallArguments, meta).arguments == values
    repaired = ask("caller", CallArguments, {**meta, "values": {}}).arguments
    assert validate_call(of, repaired) == []
    assert (repaired["amount"], repaired["source_currency"]) == (5, "EUR")


@pytest.mark.parametrize("role", ["checker_a", "checker_b"])
@pytest.mark.parametrize(
    ("instruction", "right"),
    [
        ("What time is it in the timezone of Chicago right now?", "get_current_time"),
        ("Open the file notes.txt and show me its contents", "read_text_file"),
        ("File a new issue in the project HARB titled 'Ice on the pier'", "jira_create_issue"),
        ("Convert 30 euros to Swedish kronor, I only know the currency codes", "convert_amount"),
        ("The knowledge graph lacks the relations between these entities", "create_relations"),
        ("Why does my dog turn in circles before lying down?", None),
        ("Tell me a joke to cheer me up.", None),
        ("", None),
    ],
)
def test_a_checker_picks_what_the_words_speak_of_and_else_none(
    role: str, instruction: str, right: str | None
) -> None:
    for seed in range(4):
        shown = random.Random(seed).sample(CONTRACTS, len(CONTRACTS))
        made = ask(role, ToolChoice, {"contracts": shown, "instruction": instruction})
        assert (shown[made.tool - 1]["name"] if made.tool else None) == right, made.reason


def test_an_actor_keeps_to_the_output_schema_and_repeats_what_was_asked() -> None:
    of = {
        **canonicalize_contract(CITY_TIME),
        "outputSchema": {
            "type": "object",
            "properties": {
                "timezone": {"type": "string"},
                "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            },
            "required": ["timezone", "hour"],
        },
    }
    for zone in ("Europe/Oslo", "Asia/Tokyo"):
        made = ask("actor", ToolReply, {"contract": of, "arguments": {"timezone": zone}})
        answer = json.loads(made.content)
        assert answer["timezone"] == zone
        assert 0 <= answer["hour"] <= 23


def test_an_unknown_answer_is_refused_with_what_is_known() -> None:
    class Sonnet(BaseModel):
        lines: list[str]

    with pytest.raises(LLMError, match=r"Sonnet.*CallArguments, IncompleteRequest"):
        ask("generator", Sonnet, {})


def test_an_injected_answer_goes_first() -> None:
    request = ModelRequest(Role("judge"), [], CallArguments, 0, {}, 64)
    provider = OfflineProvider({"judge": lambda meta, seed: {"arguments": {"injected": True}}})
    assert json.loads(asyncio.run(provider.answer(request)).text)["arguments"] == {"injected": True}


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
def test_no_odd_contract_leaves_a_role_without_an_answer(
    tools: list[dict], seed: int, text: str
) -> None:
    shown = [
        {
            "name": t["name"],
            "description": t["description"],
            "inputSchema": {
                "type": "object",
                "properties": t["properties"],
                "required": list(t["properties"]),
            },
        }
        for t in tools
    ]
    of = shown[0]
    made = ask("generator", RequestDrafts, {"contract": of, "count": 2, "rivals": shown[1:]}, seed)
    values = made.requests[0].values
    for shape in ("parallel", "sequential"):
        ask("generator", MultiCallRequest, {"contracts": shown, "shape": shape}, seed)
    ask("generator", ToollessRequest, {"contracts": shown}, seed)
    for name in [*tools[0]["properties"], "no_such"]:
        ask("generator", IncompleteRequest, {"contract": of, "parameter": name}, seed)
    about = {"contract": of, "instruction": text or "x", "values": values}
    ask("reviser", RewrittenRequest, {**about, "absent": ["x.y[0]"]}, seed)
    ask("evolver", RewrittenRequest, {**about, "direction": text}, seed)
    ask("caller", CallArguments, {**about, "wrong": {"a": 1}, "error": text}, seed)
    ask("actor", ToolReply, {"contract": of, "arguments": values}, seed)
    for role in ("checker_a", "checker_b"):
        assert (
            0 <= ask(role, ToolChoice, {"contracts": shown, "instruction": text}).tool <= len(shown)
        )


def test_ping_and_odd_scripts_are_answered_too() -> None:
    for of in (canonicalize_contract(PING), canonicalize_contract(ODD)):
        made = ask("generator", RequestDrafts, {"contract": of, "count": 3})
        assert all(draft.instruction.strip() for draft in made.requests)
