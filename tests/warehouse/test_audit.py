"""Audits: every expectation has the verdict of its own, over the table that was handed in."""

import polars as pl

from warehouse.audit import (
    audit,
    expect_between,
    expect_match,
    expect_one_of,
    expect_present,
    expect_unique,
)

ROWS = pl.DataFrame({"name": ["a", "b", "b", None], "kind": ["x", "x", "y", "x"]})


def test_each_expectation_has_its_verdict_in_the_order_asked():
    expectations = [expect_unique("name"), expect_one_of("kind", ["x"]), expect_present("kind")]
    verdicts = audit(ROWS, expectations).verdicts
    assert [verdict.rule for verdict in verdicts] == ["name_unique", "kind_in_set", "kind_present"]
    assert [verdict.passed for verdict in verdicts] == [False, False, True]
    assert verdicts[1].observed == "1 unexpected of 4, e.g. y"


def test_an_expectation_that_cannot_be_tried_fails_and_moves_no_other():
    expectations = [expect_present("kind"), expect_between("kind", 0, 1), expect_present("name")]
    verdicts = audit(ROWS, expectations).verdicts
    assert [(verdict.rule, verdict.passed) for verdict in verdicts] == [
        ("kind_present", True),
        ("kind_in_range", False),
        ("name_present", False),
    ]


def test_a_table_is_audited_for_itself_after_another():
    rule = [expect_unique("name"), expect_unique("name")]
    assert not audit(ROWS, rule).passed
    assert audit(ROWS.head(2), rule).passed
    assert [verdict.passed for verdict in audit(ROWS, rule).verdicts] == [False, False]


def test_a_null_is_none_of_the_values_unless_it_may_be_absent():
    some = pl.DataFrame({"kind": ["x", None, "x"]})
    asked = [
        expect_one_of("kind", ["x"]),
        expect_match("kind", "^x$"),
        expect_one_of("kind", ["x"], optional=True),
        expect_match("kind", "^x$", optional=True),
    ]
    verdicts = audit(some, asked).verdicts
    assert [verdict.passed for verdict in verdicts] == [False, False, True, True]
    assert verdicts[0].observed == "1 null of 3"
    assert audit(some.drop_nulls(), asked).passed
