"""Sources are left out and taken back by decisions that are only ever appended."""

from pathlib import Path

import pytest

from assets.outcomes.reliability.sources.decisions import (
    SourceDecision,
    SourceDecisionError,
    find_excluded,
    read_source_decisions,
    record_source_decision,
)


def decide(source: str, verdict: str) -> SourceDecision:
    return SourceDecision(source, verdict, "ada", "false reports", "2026-01-02T03:04:05Z")


def test_the_last_decision_on_a_source_counts(tmp_path: Path) -> None:
    assert find_excluded(read_source_decisions(tmp_path)) == set()
    for source, verdict in (("token:a", "excluded"), ("token:b", "excluded")):
        record_source_decision(tmp_path, decide(source, verdict))
    assert find_excluded(read_source_decisions(tmp_path)) == {"token:a", "token:b"}
    record_source_decision(tmp_path, decide("token:a", "included"))
    assert find_excluded(read_source_decisions(tmp_path)) == {"token:b"}
    assert len(read_source_decisions(tmp_path)) == 3


@pytest.mark.parametrize(
    ("source", "verdict", "named"),
    [
        ("anna", "excluded", "token:NAME"),
        ("token:", "excluded", "without a name"),
        ("token:a", "banned", "included"),
        (" ", "excluded", "source is empty"),
    ],
)
def test_a_bad_decision_is_refused_by_name(
    tmp_path: Path, source: str, verdict: str, named: str
) -> None:
    with pytest.raises(SourceDecisionError, match=named):
        record_source_decision(tmp_path, decide(source, verdict))
    assert read_source_decisions(tmp_path) == []


def test_a_line_that_was_tampered_with_lets_no_source_back_in(tmp_path: Path) -> None:
    record_source_decision(tmp_path, decide("token:a", "excluded"))
    path = tmp_path / "reliability" / "decisions.jsonl"
    path.write_text(path.read_text() + '{"source": "token:a"}\n')
    with pytest.raises(SourceDecisionError, match=r"decisions\.jsonl:2: not a decision"):
        read_source_decisions(tmp_path)
