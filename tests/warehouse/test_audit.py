"""Audits: every expectation has the verdict of its own, over the table that was handed in."""

import errno
import re
from unittest.mock import Mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from warehouse.audit import audit, expect_unique, read_expectations
from warehouse.errors import UnusableInput
from warehouse.item_failure import describe_failure, try_item
from warehouse.ledger.database import LedgerUnavailable
from warehouse.user_files import parse_json, read_json_lines, read_text

ROWS = pl.DataFrame({"name": ["a", "b", "b", None], "kind": ["x", "x", "y", "x"]})


def test_each_expectation_has_its_verdict_in_the_order_asked_also_of_another_table_after_it():
    expectations = [expect_unique("name"), *read_expectations({"kind": ["x"], "kind?": True})]
    verdicts = audit(ROWS, expectations).verdicts
    assert [verdict.rule for verdict in verdicts] == ["name_unique", "kind_in_set", "kind_present"]
    assert [verdict.passed for verdict in verdicts] == [False, False, True]
    assert verdicts[1].observed == "1 unexpected of 4, e.g. y"
    rule = [expect_unique("name"), expect_unique("name")]
    assert not audit(ROWS, rule).passed
    assert audit(ROWS.head(2), rule).passed
    assert [verdict.passed for verdict in audit(ROWS, rule).verdicts] == [False, False]


def test_an_expectation_that_cannot_be_tried_moves_no_other_and_a_null_is_no_value():
    expectations = read_expectations({"kind": True, "kind?": {"from": 0, "to": 1}, "name": True})
    assert [(verdict.rule, verdict.passed) for verdict in audit(ROWS, expectations).verdicts] == [
        ("kind_present", True),
        ("kind_in_range", False),
        ("name_present", False),
    ]
    some = pl.DataFrame({"kind": ["x", None, "x"]})
    facts = [{name: value} for name in ("kind", "kind?") for value in (["x"], "^x$")]
    asked = [expectation for fact in facts for expectation in read_expectations(fact)]
    verdicts = audit(some, asked).verdicts
    assert [verdict.passed for verdict in verdicts] == [False, False, True, True]
    assert verdicts[0].observed == "1 null of 3"
    assert audit(some.drop_nulls(), asked).passed


def _break(text: str) -> str:
    raise RuntimeError(text)


@given(st.text())
def test_one_fault_has_one_digest_and_tells_nothing_of_its_item(text):
    line = try_item(lambda: _break(text), lambda hint: hint)
    assert re.fullmatch(
        r"RuntimeError at tests/warehouse/test_audit\.py:\d+ _break, trace [0-9a-f]{12}", line
    )


def test_another_fault_has_another_digest_and_an_error_never_raised_is_described():
    hints = {try_item(lambda one=one: _break(one), lambda hint: hint) for one in ("a", "b")}
    other = try_item(lambda: {}["a"], lambda hint: hint)
    assert len(hints) == 1
    assert other.startswith("KeyError at tests/")
    assert other[-12:] != next(iter(hints))[-12:]
    assert describe_failure(ValueError("x")).startswith("ValueError at ?:0 ?, trace ")


@cases(
    "error",
    LedgerUnavailable("the ledger is locked"),
    OSError(errno.ENOSPC, "No space left on device"),
    LookupError("of the caller"),
    KeyboardInterrupt(),
)
def test_what_concerns_the_run_is_raised(error):
    with pytest.raises(type(error)):
        try_item(Mock(side_effect=error), lambda _: None, through=(LookupError,))


def test_what_cannot_be_opened_says_what_was_expected_and_lines_are_numbered(tmp_path):
    with pytest.raises(UnusableInput, match="Is a directory; expected a file that can be read"):
        read_text(tmp_path)
    with pytest.raises(UnusableInput, match=r"none: No such file or directory; expected a file"):
        read_text(tmp_path / "none")
    (tmp_path / "long").write_text("four")
    with pytest.raises(UnusableInput, match="more than 3 bytes"):
        read_text(tmp_path / "long", 3)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "one\u2028two"}\n\n{"b": 2}\n', encoding="utf-8-sig")
    assert list(read_json_lines(path)) == [(1, {"a": "one\u2028two"}), (3, {"b": 2})]
    path.write_text("[1]\n")
    with pytest.raises(UnusableInput, match="line 1: list, expected a JSON object"):
        list(read_json_lines(path))


@cases(
    "text, told",
    (" ", "empty; give one JSON value"),
    ("{", "not JSON"),
    ("[" * 200_000, "nested too deep to be read"),
    ("9" * 5_000, "an integer of too many digits to be read"),
)
def test_what_is_no_json_is_told_in_our_words(text, told):
    with pytest.raises(UnusableInput, match=rf"^here: .*{told}") as caught:
        parse_json(text, "here")
    assert "set_int_max_str_digits" not in str(caught.value)
