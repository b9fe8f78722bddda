"""Which sources are left out: append-only decisions, so that every one can be taken back.

reliability/decisions.jsonl   {source, verdict, by, why, at}
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assets.outcomes.reliability.observation import EXECUTION, TOKEN
from warehouse.storage.decisions import DecisionFile

EXCLUDED, INCLUDED = "excluded", "included"


class SourceDecisionError(ValueError):
    """A decision that cannot be made or read; the message says what is wrong."""


@dataclass(frozen=True)
class SourceDecision:
    """One judgement by a person about all that a source says. at: UTC, ISO 8601."""

    source: str
    verdict: str
    by: str
    why: str
    at: str


def record_source_decision(home: Path, decision: SourceDecision) -> None:
    """Appends one decision. Raises SourceDecisionError on a bad one."""
    _FILE.record(home, decision)


def read_source_decisions(home: Path) -> list[SourceDecision]:
    """All decisions, oldest first. Raises SourceDecisionError for a line that is none: a record
    that was tampered with must let no source back in."""
    return _FILE.read(home)


def find_excluded(decisions: Iterable[SourceDecision]) -> frozenset[str]:
    """The sources whose last decision leaves them out."""
    last = {decision.source: decision.verdict for decision in decisions}
    return frozenset(source for source, verdict in last.items() if verdict == EXCLUDED)


def _find_problem(decision: SourceDecision) -> str:
    if decision.source != EXECUTION and not decision.source.removeprefix(TOKEN):
        return "source is a token without a name"
    if not decision.source.startswith(TOKEN) and decision.source != EXECUTION:
        return f"source is {decision.source[:60]!r}, expected {TOKEN}NAME or {EXECUTION}"
    if decision.verdict not in (EXCLUDED, INCLUDED):
        return f"verdict is {decision.verdict[:40]!r}, expected {EXCLUDED!r} or {INCLUDED!r}"
    return ""


_FILE = DecisionFile(
    Path("reliability") / "decisions.jsonl",
    SourceDecision,
    _find_problem,
    SourceDecisionError,
    "delete the line, or write it as `toolmill reliability exclude` does",
)
