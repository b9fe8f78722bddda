"""Rows, placed calls and scripted models of the sidecar's tests."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from extensions.sidecar.prompt import RevisionRow, assign_row_id
from extensions.sidecar.revision_data import PlacedCall, place_calls
from serving.repair.tools import ProposedCall, RevisionRequest


def place(rows: list[dict[str, Any]], pool: dict[str, Any], n: int = 6) -> list[PlacedCall]:
    return place_calls(rows[:n], pool, candidates=4)


def talk(row: dict[str, Any], *messages: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**row, "messages": list(messages), **changed}


def call_message(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


Script = Callable[[RevisionRequest], ProposedCall | None]


class ScriptedReviser:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[RevisionRequest] = []

    def __call__(self, request: RevisionRequest) -> ProposedCall | None:
        return self.revise_requests([request])[0]

    def revise_requests(self, requests: Sequence[RevisionRequest]) -> list[ProposedCall | None]:
        self.asked += requests
        return [self.script(request) for request in requests]


ROOM = {"room": {"type": "string"}, "guests": {"type": "integer"}}
BOOKED = {
    "day": {"type": "string", "format": "date"},
    "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
}
BOOK_SCHEMA = {
    "type": "object",
    "properties": ROOM | BOOKED,
    "required": ["room", "guests"],
    "additionalProperties": False,
}
CANCEL_SCHEMA = {"type": "object", "properties": ROOM, "required": ["room"]}
BOOK = {"name": "book_room", "description": "Books a room.", "inputSchema": BOOK_SCHEMA}
CANCEL = {"name": "cancel_room", "description": "Cancels a room.", "inputSchema": CANCEL_SCHEMA}
SAID = "Book the room Aspen for 4 guests on 2026-12-01, please."
RIGHT = {"name": "book_room", "arguments": {"room": "Aspen", "guests": 4, "day": "2026-12-01"}}
QUESTION = "Which room should I book?"
DRAFTS: dict[str, tuple[str, Any]] = {
    "wrong_type": ("book_room", {"room": "Aspen", "guests": "four", "day": "2026-12-01"}),
    "missing": ("book_room", {"room": "Aspen"}),
    "renamed": ("book_room", {"room_name": "Aspen", "guests": 4}),
    "wrong_tool": ("cancel_room", {"room": "Aspen"}),
    "unknown_tool": ("rooms.reserve", {"room": "Aspen", "guests": 4}),
    "unreadable": ("book_room", '{"room": "Aspen", "guests": '),
}


def make_row(kind: str = "wrong_type", **changed: Any) -> RevisionRow:
    """A row with one of DRAFTS, an untouched one ("untouched"), or one to ask about ("ask")."""
    name, arguments = DRAFTS.get(kind, (RIGHT["name"], RIGHT["arguments"]))
    facts: dict[str, Any] = {
        "server_id": "npm:rooms", "conversation": ({"role": "user", "content": SAID},),
        "contracts": (BOOK, CANCEL), "draft_name": name, "draft_arguments": arguments,
        "problems": ("guests: expected an integer",), "right": (RIGHT,), "kind": kind,
        "source": "untouched" if kind == "untouched" else "corrupted",
    }  # fmt: skip
    if kind == "ask":
        conversation = ({"role": "user", "content": "Book a room for 4."},)
        facts |= {"conversation": conversation, "draft_arguments": {"guests": 4}}
        facts |= {"right": (), "question": QUESTION}
    return build_row(facts | changed)


def build_row(facts: dict[str, Any]) -> RevisionRow:
    return assign_row_id(RevisionRow(**{"row_id": "", "split": "train", "question": "", **facts}))


def write_call(call: Any, form: str = "tagged") -> str:
    """A call as a model writes it: alone, in tags, or so that only a fixer reads it."""
    text = json.dumps(call)
    return {"plain": text, "tagged": f"<tool_call>\n{text}\n</tool_call>",
            "prose": f"Here it is: {text}", "broken": text[:-1]}[form]  # fmt: skip


KINDS = [*DRAFTS, "untouched"]
VALUES = st.one_of(
    *(st.just(one) for one in ("Aspen", "Birch", 4, 5, "4", True, None, "large", "2026-12-01")),
    st.integers(-5, 5),
    st.text(max_size=6),
    st.lists(st.integers(0, 3), max_size=2),
)
CALLS = st.fixed_dictionaries({
    "name": st.sampled_from(["book_room", "cancel_room", "rooms.reserve", ""]),
    "arguments": st.dictionaries(
        st.sampled_from(["room", "guests", "day", "size", "room_name"]), VALUES, max_size=4
    ),
})  # fmt: skip
