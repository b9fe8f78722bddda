"""Canonical JSON: the same value has one name, and what has none says where."""

import json

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from warehouse.storage.digest import Sha256, canonical_json, digest, read_sha256, sha256

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children)
    ),
    max_leaves=15,
)


@given(json_values)
def test_a_canonical_form_is_json_of_the_same_value_and_is_stable(value: object) -> None:
    once = canonical_json(value)
    # A double beyond 2**53 is written without a point, which Python would read as an integer.
    assert canonical_json(json.loads(once, parse_int=float)) == once


@given(json_values)
@example({"\x00": '\x7f\u2028"\\', "a": [0.0, -0.0, 1.0, 1e15, 1e21, 1e-4, 1e-7, 5e-324, 0.1]})
@example({"\U0001f600": 1, "\uff5e": (2, [])})  # sorted by UTF-16, not by code points
def test_a_canonical_form_is_that_of_the_reference(value: object) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(max_size=6), st.integers(-9, 9), min_size=2))
def test_key_order_does_not_change_the_digest(value: dict[str, int]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


def test_known_form_of_rfc_8785() -> None:
    source = {"numbers": [333333333.33333329, 1e30, 4.50, 2e-3], "literals": [None, True, False]}
    expected = b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002]}'
    assert canonical_json(source) == expected


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, float("nan")]}, r"\$\.a\[1\]: nan"),
        ({"a": {"b": 2**60}}, r"\$\.a\.b: integer"),
        ({"a": "\ud800"}, r"\$\.a: text holds a lone surrogate"),
        ({"a": {1: 2}}, r"key 1 is not a string"),
        ({"a": b"x"}, r"\$\.a: bytes is not JSON"),
    ],
)
def test_what_has_no_canonical_form_is_named_by_its_path(value: object, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        canonical_json(value)


def test_nesting_that_would_overflow_the_stack_is_a_value_error() -> None:
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested deeper"):
        canonical_json(value)


@given(st.text(max_size=70) | st.text("0123456789abcdefABCDEF/.", min_size=62, max_size=66))
def test_a_sha256_is_64_lower_case_hex_digits_and_nothing_else(text: str) -> None:
    good = len(text) == 64 and set(text) <= set("0123456789abcdef")
    if good:
        assert Sha256(text) == text
    else:
        with pytest.raises(ValueError, match="64 lower-case hex digits"):
            Sha256(text)


def test_a_stated_sha256_is_read_in_either_case_and_with_its_prefix() -> None:
    name = sha256(b"x")
    assert {read_sha256(text) for text in (name, f"sha256:{name}", f" {name.upper()} ")} == {name}
    assert {read_sha256(text) for text in (None, "", "../x", f"sha512:{name}")} == {None}
