"""Which sources are left out: append-only decisions, so that every one can be taken back.

reliability/decisions.jsonl   {source, verdict, by, why, at}
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from assets.outcomes.reliability.observation import EXECUTION, TOKEN
from warehouse.storage.files import append_line, hold_lock

EXCLUDED, INCLUDED = "excluded", "included"
_FILE = Path("reliability") / "decisions.jsonl"


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
    if problem := _find_problem(decision):
        raise SourceDecisionError(f"no decision: {problem}")
    path = home / _FILE
    with hold_lock(path.with_suffix(".lock")):
        append_line(path, json.dumps(asdict(decision), ensure_ascii=True, sort_keys=True))


def read_source_decisions(home: Path) -> list[SourceDecision]:
    """All decisions, oldest first. Raises SourceDecisionError for a line that is none: a record
    that was tampered with must let no source back in."""
    path = home / _FILE
    if not path.exists():
        return []
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [_parse_decision(line, f"{path}:{number}") for number, line in lines if line.strip()]


def find_excluded(decisions: Iterable[SourceDecision]) -> frozenset[str]:
    """The sources whose last decision leaves them out."""
    last = {one.source: one.verdict for one in decisions}
    return frozenset(source for source, verdict in last.items() if verdict == EXCLUDED)


def _parse_decision(line: str, where: str) -> SourceDecision:
    try:
        found = SourceDecision(**json.loads(line))
    except (TypeError, ValueError) as error:
        fix = "delete the line, or write it as `toolmill reliability exclude` does"
        raise SourceDecisionError(f"{where}: not a decision ({error}); {fix}") from error
    if problem := _find_problem(found):
        raise SourceDecisionError(f"{where}: {problem}")
    return found


def _find_problem(decision: SourceDecision) -> str:
    parts = asdict(decision)
    empty = [
        name for name, value in parts.items() if not isinstance(value, str) or not value.strip()
    ]
    if empty:
        return f"{empty[0]} is empty, expected a text"
    if decision.source != EXECUTION and not decision.source.removeprefix(TOKEN):
        return "source is a token without a name"
    if not decision.source.startswith(TOKEN) and decision.source != EXECUTION:
        return f"source is {decision.source[:60]!r}, expected {TOKEN}NAME or {EXECUTION}"
    if decision.verdict not in (EXCLUDED, INCLUDED):
        return f"verdict is {decision.verdict[:40]!r}, expected {EXCLUDED!r} or {INCLUDED!r}"
    return ""
