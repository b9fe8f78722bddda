import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.quarantined_tools import (
    Decision,
    DecisionError,
    read_decisions,
    record_decision,
    split_rows,
)
from tests.support.cases import cases

DIGEST = "c1:" + "a" * 64
OTHER = "c1:" + "b" * 64
ROW = {"server_id": "npm:a", "tool": "t", "contract_digest": DIGEST}


def _found(rule, severity="high"):
    return {**ROW, "rule": rule, "severity": severity}


def _decision(verdict, rule="concealment", digest=DIGEST):
    return Decision(digest, rule, verdict, "ann@team.example", "2026-01-02T03:04:05Z", "read it")


@cases(
    "findings, decisions, clear",
    ([], [], True),
    ([_found("coercion", "medium")], [], True),
    ([_found("concealment")], [], False),
    ([_found("concealment")], [_decision("released")], True),
    ([_found("concealment")], [_decision("released", digest=OTHER)], False),
    ([_found("concealment")], [_decision("released", rule="*")], False),
    ([_found("concealment"), _found("role_change")], [_decision("released")], False),
    ([_found("concealment")], [_decision("released"), _decision("held")], False),
    ([_found("concealment")], [_decision("held"), _decision("released")], True),
    ([], [_decision("held", rule="*")], False),
    ([], [_decision("held", rule="*"), _decision("released", rule="*")], True),
)
def test_a_contract_is_clear_when_each_high_rule_was_released_and_none_is_held(
    findings, decisions, clear
):
    assert split_rows([ROW], findings, decisions) == (([ROW], []) if clear else ([], [ROW]))


def test_decisions_are_only_ever_added(tmp_path):
    assert read_decisions(tmp_path) == []
    decisions = [
        _decision("held"),
        _decision("released"),
        _decision("held", rule="*", digest=OTHER),
    ]
    for decision in decisions:
        record_decision(tmp_path, decision)
    assert read_decisions(tmp_path) == decisions


@cases(
    "bad",
    _decision("maybe"),
    _decision("held", rule=" "),
    _decision("held", digest="a" * 64),
    Decision(DIGEST, "x", "released", "", "2026-01-02", "why"),
    Decision(DIGEST, "x", "released", "ann", "2026-01-02", ""),
)
def test_a_decision_without_who_why_and_what_is_refused(bad, tmp_path):
    with pytest.raises(DecisionError, match="no decision: "):
        record_decision(tmp_path, bad)
    assert read_decisions(tmp_path) == []


def test_a_record_that_was_tampered_with_clears_nothing(tmp_path):
    record_decision(tmp_path, _decision("released"))
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_text(path.read_text() + '{"verdict": "released"}\n')
    with pytest.raises(DecisionError, match=r"decisions\.jsonl:2"):
        read_decisions(tmp_path)


@given(st.text(max_size=40))
def test_no_text_of_a_decision_can_make_another_line(tmp_path_factory, why):
    home = tmp_path_factory.mktemp("home")
    decision = Decision(DIGEST, "concealment", "held", "ann", "2026-01-02", f"because {why}")
    record_decision(home, decision)
    assert read_decisions(home) == [decision]
