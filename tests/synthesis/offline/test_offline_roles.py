"""Every role's offline answer: its shape, what it keeps, and what it admits to not knowing."""

import re

import pytest

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import read_slots
from assets.synthesis.offline.choice import choose_tool
from assets.synthesis.offline.provider import answer_requests
from assets.synthesis.offline.wording import find_absent
from assets.synthesis.role_schemas import (
    IncompleteRequest,
    MultiCallRequest,
    RewrittenRequest,
    ToollessRequest,
    ToolReply,
)
from assets.synthesis.verify.pair_checks import find_parroting
from assets.synthesis.verify.rules import verify
from tests.synthesis.contracts import CREATE_ISSUE, READ_FILE
from tests.synthesis.offline_ask import CONTRACTS, ENVIRONMENT, ask, grounded


def test_nearly_every_required_value_is_in_the_words() -> None:
    requests = [
        (of, r) for of in CONTRACTS for seed in range(20)
        for r in answer_requests({"contract": of, "count": 3}, seed)["requests"]
    ]  # fmt: skip
    held = sum(grounded(of, r["instruction"], r["values"]) for of, r in requests)
    assert held / len(requests) >= 0.95, (held, len(requests))


def test_few_requests_hand_the_contract_back() -> None:
    reasons = [
        find_parroting(of, r["instruction"], r["values"]) for of in CONTRACTS for seed in range(20)
        for r in answer_requests({"contract": of, "count": 3}, seed)["requests"]
    ]  # fmt: skip
    assert sum(reason is not None for reason in reasons) / len(reasons) <= 0.1


def test_kinds_come_in_the_order_asked_for_and_drafts_say_their_language() -> None:
    meta = {
        "contract": canonicalize_contract(READ_FILE),
        "count": 3,
        "kinds": ["implicit", "direct", "direct"],
        "profiles": [{"persona": "a nurse", "tone": "polite", "language": "de", "difficulty": "1"}],
    }
    made = answer_requests(meta, 3)["requests"]
    assert [draft["kind"] for draft in made] == ["implicit", "direct", "direct"]
    assert {draft["language"] for draft in made} == {"en"}  # German was asked for; none is claimed
    assert all("please" in d["instruction"].lower() or "thank" in d["instruction"].lower()
               or "grateful" in d["instruction"] for d in made)  # fmt: skip


def test_values_are_taken_from_the_environment_that_is_given() -> None:
    meta = {"contract": canonicalize_contract(READ_FILE), "count": 12, "environment": ENVIRONMENT}
    paths = [r["values"]["path"] for r in answer_requests(meta, 1)["requests"]]
    assert sum(path in ENVIRONMENT["files"] for path in paths) >= 7
    due = [
        r["values"].get("due_date")
        for seed in range(10)
        for r in answer_requests(
            {**meta, "contract": canonicalize_contract(CREATE_ISSUE), "count": 3}, seed
        )["requests"]
    ]
    assert "2026-02-11" in due


@pytest.mark.parametrize(
    "environment", [{"files": None}, {"files": "x"}, {"dates": [3]}, {"odd": []}]
)
def test_an_odd_world_does_no_harm(environment: dict) -> None:
    made = answer_requests(
        {"contract": canonicalize_contract(READ_FILE), "count": 3, "environment": environment}, 1
    )
    assert len(made["requests"]) == 3


@pytest.mark.parametrize("shape", ["parallel", "sequential"])
@pytest.mark.parametrize("seed", range(6))
def test_several_calls_are_valid_and_all_in_the_words(shape: str, seed: int) -> None:
    for first in CONTRACTS:
        for shown in (
            [first, canonicalize_contract(CREATE_ISSUE)],
            [canonicalize_contract(READ_FILE), first],
        ):
            meta = {"contracts": shown, "shape": shape, "environment": ENVIRONMENT}
            made = ask("generator", MultiCallRequest, meta, seed)
            assert len(made.calls) == 2
            for step in made.calls:
                of = shown[step.tool - 1]
                assert validate_call(of, step.arguments) == []
                assert grounded(of, made.instruction, step.arguments, step.borrowed)


def test_the_same_tool_twice_is_asked_for_two_things() -> None:
    made = ask(
        "generator",
        MultiCallRequest,
        {"contracts": [canonicalize_contract(READ_FILE)], "shape": "parallel"},
    )
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
    shown = [canonicalize_contract(FIND_NOTES), canonicalize_contract(PIN_NOTE)]
    made = ask("generator", MultiCallRequest, {"contracts": shown, "shape": "sequential"}, seed)
    first, second = made.calls
    assert (first.tool, second.tool, second.borrowed) == (1, 2, ["note_id"])
    answer = ask("actor", ToolReply, {"contract": shown[0], "arguments": first.arguments}, seed + 1)
    assert second.arguments["note_id"] in answer.content
    assert second.arguments["note_id"] not in made.instruction


@pytest.mark.parametrize("seed", range(10))
def test_an_aside_is_served_by_no_tool_and_answered_without(seed: int) -> None:
    made = ask("generator", ToollessRequest, {"contracts": CONTRACTS, "profile": {}}, seed)
    assert choose_tool(CONTRACTS, made.instruction)[0] == 0
    assert "{" not in made.instruction + made.reply


def test_sums_in_asides_are_right_and_kept_from_calculators() -> None:
    calculator = canonicalize_contract(
        {
            "name": "calculate",
            "description": "Adds and multiplies numbers",
            "inputSchema": {"type": "object"},
        }
    )
    for seed in range(60):
        other = ask(
            "generator", ToollessRequest, {"contracts": [canonicalize_contract(READ_FILE)]}, seed
        )
        if " times " in other.reply:
            a, b, c = (int(n) for n in re.findall(r"\d+", other.reply))
            assert a * b == c
        of_sums = ask("generator", ToollessRequest, {"contracts": [calculator]}, seed)
        assert not any(char.isdigit() for char in of_sums.instruction)


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
@pytest.mark.parametrize("seed", range(4))
def test_a_vague_request_lacks_what_its_answer_states(of: dict, seed: int) -> None:
    for slot in (slot for slot in read_slots(of) if slot.required):
        made = ask("generator", IncompleteRequest, {"contract": of, "parameter": slot.name}, seed)
        assert slot.name in find_absent(of, made.instruction, made.values), made
        assert grounded(of, f"{made.instruction}\n{made.answer}", made.values), made
        assert made.question.endswith("?")
        assert validate_call(of, made.values) == []


@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
def test_the_reviser_says_what_the_request_lacks(of: dict) -> None:
    for seed in range(6):
        draft = answer_requests({"contract": of, "count": 3}, seed)["requests"][seed % 3]
        meta = {
            "contract": of, "instruction": "Could you do this for me?", "values": draft["values"],
            "absent": list(draft["values"]), "environment": ENVIRONMENT, "language": "en",
        }  # fmt: skip
        made = ask("reviser", RewrittenRequest, meta, seed)
        assert made.values == draft["values"]
        assert grounded(of, made.instruction, made.values), made


def test_the_reviser_draws_a_required_value_nobody_has() -> None:
    meta = {
        "contract": canonicalize_contract(READ_FILE),
        "instruction": "Read it.",
        "values": {},
        "absent": ["path"],
    }
    made = ask("reviser", RewrittenRequest, {**meta, "environment": ENVIRONMENT})
    assert made.values["path"] in made.instruction


@pytest.mark.parametrize("direction", ["add a constraint", "deepen: a reason", "context", "", "?"])
@pytest.mark.parametrize("of", CONTRACTS, ids=lambda c: c["name"])
def test_evolution_adds_ten_to_twenty_words_and_loses_nothing(of: dict, direction: str) -> None:
    for seed in range(3):
        draft = answer_requests({"contract": of, "count": 1}, seed)["requests"][0]
        meta = {**draft, "contract": of, "direction": direction, "environment": ENVIRONMENT}
        made = ask("evolver", RewrittenRequest, meta, seed)
        added = len(made.instruction.split()) - len(draft["instruction"].split())
        assert 10 <= added <= 20, made.instruction
        assert made.values == draft["values"]
        assert grounded(of, made.instruction, made.values)
        assert set(verify(of, made.instruction, made.values).kinds) <= {"copies_description"}
