"""Every role's offline answer: its shape, what it keeps, and what it admits to not knowing."""

import asyncio
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from assets.contracts.canonical import contract
from assets.contracts.validate import validate_call
from assets.synthesis.answers import Acted, Aside, Call, Choice, Requests, Several, Vague, Worded
from assets.synthesis.offline import Offline, generate
from assets.synthesis.offline_choice import choose
from assets.synthesis.offline_grounds import absent
from assets.synthesis.reading import slots
from assets.synthesis.verify import verify
from tests.synthesis.contracts import ALL, CITY_TIME, CONVERT, CREATE_ISSUE, ODD, PING, READ_FILE
from warehouse.effects.llm import LLMError, Request, Role

CONTRACTS = [contract(tool) for tool in ALL]
WORLD = {
    "files": ["/srv/harbour/tides.csv", "/srv/harbour/crew.txt"],
    "ids": ["HARB-17", "4411"],
    "places": ["Zierikzee"],
    "people": ["Wim Dekker"],
    "dates": ["2026-02-11"],
}


def ask(role: str, schema: type[BaseModel], meta: dict[str, Any], seed: int = 0) -> Any:
    """One answer through the provider, parsed as its caller would."""
    request = Request(Role(role), [], schema, seed, meta, 1024)
    completion = asyncio.run(Offline().answer(request))
    assert completion.model.startswith("offline-")
    return schema.model_validate_json(completion.text)


def grounded(of: dict, text: str, values: dict, borrowed: list[str] | tuple = ()) -> bool:
    return not [name for name in absent(of, text, values) if name not in borrowed]


def test_nearly_every_required_value_is_in_the_words() -> None:
    said = [
        (of, r) for of in CONTRACTS for seed in range(20)
        for r in generate({"contract": of, "count": 3}, seed)["requests"]
    ]  # fmt: skip
    held = sum(grounded(of, r["instruction"], r["values"]) for of, r in said)
    assert held / len(said) >= 0.95, (held, len(said))


def test_kinds_come_in_the_order_asked_for_and_drafts_say_their_language() -> None:
    meta = {
        "contract": contract(READ_FILE), "count": 3, "kinds": ["implicit", "direct", "direct"],
        "profiles": [{"persona": "a nurse", "tone": "polite", "language": "de", "difficulty": "1"}],
    }  # fmt: skip
    made = generate(meta, 3)["requests"]
    assert [draft["kind"] for draft in made] == ["implicit", "direct", "direct"]
    assert {draft["language"] for draft in made} == {"en"}  # German was asked for; none is claimed
    assert all("please" in d["instruction"].lower() or "thank" in d["instruction"].lower()
               or "grateful" in d["instruction"] for d in made)  # fmt: skip


def test_values_are_taken_from_the_world_that_is_given() -> None:
    meta = {"contract": contract(READ_FILE), "count": 12, "environment": WORLD}
    paths = [r["values"]["path"] for r in generate(meta, 1)["requests"]]
    assert sum(path in WORLD["files"] for path in paths) >= 7
    due = [
        r["values"].get("due_date")
        for seed in range(10)
        for r in generate({**meta, "contract": contract(CREATE_ISSUE), "count": 3}, seed)[
            "requests"
        ]
    ]
    assert "2026-02-11" in due


@pytest.mark.parametrize("world", [{"files": None}, {"files": "x"}, {"dates": [3]}, {"odd": []}])
def test_an_odd_world_does_no_harm(world: dict) -> None:
    made = generate({"contract": contract(READ_FILE), "count": 3, "environment": world}, 1)
    assert len(made["requests"]) == 3


@pytest.mark.parametrize("shape", ["parallel", "sequential"])
@pytest.mark.parametrize("seed", range(6))
def test_several_calls_are_valid_and_all_in_the_words(shape: str, seed: int) -> None:
    for first in CONTRACTS:
        for shown in ([first, contract(CREATE_ISSUE)], [contract(READ_FILE), first]):
            meta = {"contracts": shown, "shape": shape, "environment": WORLD}
            made = ask("generator", Several, meta, seed)
            assert len(made.calls) == 2
            for step in made.calls:
                of = shown[step.tool - 1]
                assert validate_call(of, step.arguments) == []
                assert grounded(of, made.instruction, step.arguments, step.borrowed)


def test_the_same_tool_twice_is_asked_for_two_things() -> None:
    made = ask("generator", Several, {"contracts": [contract(READ_FILE)], "shape": "parallel"})
    assert [step.tool for step in made.calls] == [1, 1]
    assert made.calls[0].arguments["path"] != made.calls[1].arguments["path"]
    assert all(step.arguments["path"] in made.instruction for step in made.calls)


FIND_NOTES = {
    "name": "find_notes",
    "description": "Finds notes that mention a word",
    "inputSchema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
}
PIN_NOTE = {
    "name": "pin_note",
    "description": "Pins one note to the board",
    "inputSchema": {
        "type": "object",
        "properties": {"note_id": {"type": "string"}, "board": {"type": "string"}},
        "required": ["note_id", "board"],
    },
}


@pytest.mark.parametrize("seed", range(8))
def test_the_second_call_borrows_what_the_first_tool_will_answer(seed: int) -> None:
    shown = [contract(FIND_NOTES), contract(PIN_NOTE)]
    made = ask("generator", Several, {"contracts": shown, "shape": "sequential"}, seed)
    first, second = made.calls
    assert (first.tool, second.tool, second.borrowed) == (1, 2, ["note_id"])
    answer = ask("actor", Acted, {"contract": shown[0], "arguments": first.arguments}, seed + 1)
    assert second.arguments["note_id"] in answer.content
    assert second.arguments["note_id"] not in made.instruction


@pytest.mark.parametrize("seed", range(10))
def test_an_aside_is_served_by_no_tool_and_answered_without(seed: int) -> None:
    made = ask("generator", Aside, {"contracts": CONTRACTS, "profile": {}}, seed)
    assert choose(CONTRACTS, made.instruction)[0] == 0
    assert "{" not in made.instruction + made.reply


def test_sums_in_asides_are_right_and_kept_from_calculators() -> None:
    calculator = contract(
        {
            "name": "calculate",
            "description": "Adds and multiplies numbers",
            "inputSchema": {"type": "object"},
        }
    )
    for seed in range(60):
        other = ask("generator", Aside, {"contracts": [contract(READ_FILE)]}, seed)
        if " times " in other.reply:
            a, b, c = (int(n) for n in re.findall(r"\d+", other.reply))
            assert a * b == c
        of_sums = ask("generator", Aside, {"contracts": [calculator]}, seed)
        assert not any(char.isdigit() for char in of_sums.instruction)


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
@pytest.mark.parametrize("seed", range(4))
def test_a_vague_request_lacks_what_its_answer_states(of: dict, seed: int) -> None:
    for slot in (slot for slot in slots(of) if slot.required):
        made = ask("generator", Vague, {"contract": of, "parameter": slot.name}, seed)
        assert slot.name in absent(of, made.instruction, made.values), made
        assert grounded(of, f"{made.instruction}\n{made.answer}", made.values), made
        assert made.question.endswith("?")
        assert validate_call(of, made.values) == []


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
def test_the_reviser_says_what_the_request_lacks(of: dict) -> None:
    for seed in range(6):
        draft = generate({"contract": of, "count": 3}, seed)["requests"][seed % 3]
        meta = {
            "contract": of, "instruction": "Could you do this for me?", "values": draft["values"],
            "absent": list(draft["values"]), "environment": WORLD, "language": "en",
        }  # fmt: skip
        made = ask("reviser", Worded, meta, seed)
        assert made.values == draft["values"]
        assert grounded(of, made.instruction, made.values), made


def test_the_reviser_draws_a_required_value_nobody_has() -> None:
    meta = {
        "contract": contract(READ_FILE), "instruction": "Read it.", "values": {}, "absent": ["path"]
    }  # fmt: skip
    made = ask("reviser", Worded, {**meta, "environment": WORLD})
    assert made.values["path"] in made.instruction


@pytest.mark.parametrize("direction", ["add a constraint", "deepen: a reason", "context", "", "?"])
@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
def test_evolution_adds_ten_to_twenty_words_and_loses_nothing(of: dict, direction: str) -> None:
    for seed in range(3):
        draft = generate({"contract": of, "count": 1}, seed)["requests"][0]
        meta = {**draft, "contract": of, "direction": direction, "environment": WORLD}
        made = ask("evolver", Worded, meta, seed)
        added = len(made.instruction.split()) - len(draft["instruction"].split())
        assert 10 <= added <= 20, made.instruction
        assert made.values == draft["values"]
        assert grounded(of, made.instruction, made.values)
        assert set(verify(of, made.instruction, made.values).kinds) <= {"copies_description"}


def test_the_caller_gives_the_values_and_mends_wrong_ones() -> None:
    of, values = (
        contract(CONVERT),
        {"amount": 5, "source_currency": "EUR", "target_currency": "SEK"},
    )
    assert ask("caller", Call, {"contract": of, "values": values}).arguments == values
    wrong = {"amount": "5", "source_currency": "EUR", "to": "SEK"}
    meta = {"contract": of, "values": values, "wrong": wrong, "error": "amount is not a number"}
    assert ask("caller", Call, meta).arguments == values
    mended = ask("caller", Call, {**meta, "values": {}}).arguments
    assert validate_call(of, mended) == []
    assert (mended["amount"], mended["source_currency"]) == (5, "EUR")


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
        made = ask(role, Choice, {"contracts": shown, "instruction": instruction})
        assert (shown[made.tool - 1]["name"] if made.tool else None) == right, made.reason


def test_checkers_read_differently() -> None:
    shown = [contract(READ_FILE), contract(CITY_TIME)]
    asked = "filesystems, textually"
    picks = [ask(r, Choice, {"contracts": shown, "instruction": asked}).tool for r in ("checker_a",
             "checker_b")]  # fmt: skip
    assert picks == [0, 1]  # whole words find nothing; their parts do


def test_an_actor_keeps_to_the_output_schema_and_repeats_what_was_asked() -> None:
    of = {
        **contract(CITY_TIME),
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
        made = ask("actor", Acted, {"contract": of, "arguments": {"timezone": zone}})
        told = json.loads(made.content)
        assert told["timezone"] == zone
        assert 0 <= told["hour"] <= 23


def test_an_unknown_answer_is_refused_with_what_is_known() -> None:
    class Sonnet(BaseModel):
        lines: list[str]

    with pytest.raises(LLMError, match=r"Sonnet.*Acted, Aside, Call, Choice"):
        ask("generator", Sonnet, {})


def test_an_injected_answer_goes_first() -> None:
    request = Request(Role("judge"), [], Call, 0, {}, 64)
    provider = Offline({"judge": lambda meta, seed: {"arguments": {"injected": True}}})
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


@settings(max_examples=60, deadline=None)
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
    made = ask("generator", Requests, {"contract": of, "count": 2, "rivals": shown[1:]}, seed)
    values = made.requests[0].values
    for shape in ("parallel", "sequential"):
        ask("generator", Several, {"contracts": shown, "shape": shape}, seed)
    ask("generator", Aside, {"contracts": shown}, seed)
    for name in [*tools[0]["properties"], "no_such"]:
        ask("generator", Vague, {"contract": of, "parameter": name}, seed)
    about = {"contract": of, "instruction": text or "x", "values": values}
    ask("reviser", Worded, {**about, "absent": ["x.y[0]"]}, seed)
    ask("evolver", Worded, {**about, "direction": text}, seed)
    ask("caller", Call, {**about, "wrong": {"a": 1}, "error": text}, seed)
    ask("actor", Acted, {"contract": of, "arguments": values}, seed)
    for role in ("checker_a", "checker_b"):
        assert 0 <= ask(role, Choice, {"contracts": shown, "instruction": text}).tool <= len(shown)


def test_ping_and_odd_scripts_are_answered_too() -> None:
    for of in (contract(PING), contract(ODD)):
        made = ask("generator", Requests, {"contract": of, "count": 3})
        assert all(draft.instruction.strip() for draft in made.requests)
