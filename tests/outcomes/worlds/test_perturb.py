"""Another value of an argument, that its contract takes."""

import pytest

from assets.outcomes.worlds.perturb import has_choice, perturb_argument


@pytest.mark.parametrize(
    ("value", "schema", "other"),
    [
        ("notes/budget.txt", {"type": "string"}, "notes/ohqtrg.txt"),
        ("2026-01-02", {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, "3137-12-13"),
        ("plain", {"enum": ["plain", "loud"]}, "loud"),
        (3, {"type": "integer", "maximum": 3}, 2),
        (True, {"type": "boolean"}, False),
        (["abc"], {"type": "array", "items": {"type": "string"}}, ["nop"]),
        ({"a": 1}, {"type": "object"}, {"a": 2}),
        ("only", {"enum": ["only"]}, None),
    ],
)
def test_an_argument_is_changed_to_another_that_its_contract_takes(value, schema, other):
    contract = {
        "name": "do",
        "inputSchema": {"type": "object", "properties": {"v": schema, "w": {}}},
    }
    found = perturb_argument(contract, {"v": value, "w": 1}, "v")
    assert found == (None if other is None else {"v": other, "w": 1})
    assert has_choice(contract, "v") is (schema != {"enum": ["only"]})
