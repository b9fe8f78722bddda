"""Every flaw changes the call, and is made the same each time."""

import json
from random import Random

import pytest

from extensions.sidecar.flaws import WEIGHTS, GoodCall, make_flawed
from tests.training.conftest import raw_tool

TOOL = {
    **raw_tool("find", "file"),
    "inputSchema": {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "count": {"type": "integer"},
            "owner": {"type": "string"},
            "order": {"enum": ["newest", "oldest"]},
            "open": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "box": {"type": "object", "properties": {"left": {"type": "integer"}}},
            "wait_seconds": {"type": "integer"},
            "spare": {"type": "integer"},
            "since": {"type": "string", "format": "date"},
            "one": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["title", "count"],
    },
}
GOOD = {"title": "Blue Sky", "count": 2, "owner": "Ana", "order": "newest", "open": True,
        "tags": ["a", "b"], "box": {"left": 3}, "wait_seconds": 30,
        "one": ["x"], "since": "2026-03-04"}  # fmt: skip
CALL = GoodCall("npm:file", TOOL, GOOD, {**GOOD, "title": "Old Oak"}, ("make_file",))


@pytest.mark.parametrize("kind", sorted(WEIGHTS))
def test_a_flaw_changes_the_call_and_its_seed_decides_how(kind: str) -> None:
    seed = next(n for n in range(20) if make_flawed(CALL, kind, Random(n)))
    one, again = (make_flawed(CALL, kind, Random(seed)) for _ in range(2))
    assert one is not None
    assert again is not None
    assert json.dumps([one.name, one.arguments]) == json.dumps([again.name, again.arguments])
    assert (one.name, one.arguments) != (CALL.name, GOOD)
    assert (one.kind, one.meant) == (kind, (GOOD,))


@pytest.mark.parametrize("kind", ["value of another call", "tool beside it"])
def test_a_flaw_that_cannot_be_made_is_none(kind: str) -> None:
    assert make_flawed(GoodCall("npm:file", TOOL, GOOD), kind, Random(3)) is None
