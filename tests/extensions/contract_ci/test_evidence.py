from random import Random

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from extensions.contract_ci.check import find_broken_call
from tests.contracts.random_schemas import next_version, whole


def tool(**properties: object) -> dict:
    required = [name for name in properties if name.endswith("_")]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": "t", "inputSchema": schema}


def test_a_narrower_limit_choice_or_length_is_shown_by_a_call() -> None:
    old = {"type": "integer", "minimum": 1, "maximum": 14}
    for before, after, value in (
        (old, {**old, "maximum": 7}, 14),
        ({"enum": ["c", "f", "k"]}, {"enum": ["c", "f"]}, "k"),
        ({"type": "string"}, {"type": "string", "minLength": 1}, ""),
        ({"type": "string", "maxLength": 40}, {"type": "string", "maxLength": 20}, "x" * 40),
    ):
        assert (broken := find_broken_call(tool(a=before), tool(a=after)))
        assert (broken.arguments, broken.why[:3]) == ({"a": value}, "a: ")


def test_what_only_became_wider_breaks_no_call() -> None:
    assert find_broken_call(tool(a={"enum": ["c"]}), tool(a={"enum": ["c", "f"]})) is None
    assert find_broken_call(tool(a_={"enum": 3}), tool(a_={"type": "string"})) is None


@given(st.integers(0, 10_000).map(Random))
def test_what_is_shown_was_right_and_is_wrong(rng: Random) -> None:
    old = whole(rng)
    one, other = ({"name": "t", "inputSchema": body} for body in (old, next_version(old, rng)))
    broken = find_broken_call(one, other)
    assert broken == find_broken_call(one, other)
    if broken:
        assert not validate_call(one, broken.arguments)
        assert validate_call(other, broken.arguments)
