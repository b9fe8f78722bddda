"""Decisions: who released or held a tool, on which rule, when and why.

A decision is about one contract, by its digest: a tool that changes is judged anew.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from assets.contracts.canonical import DIGEST_PREFIX
from warehouse.storage.files import append_line, hold_lock

RELEASED, HELD = "released", "held"
ANY_RULE = "*"  # holds the contract whatever was found; releasing it lifts that hold and no other
_FILE = Path("quarantine") / "decisions.jsonl"


class DecisionError(ValueError):
    """A decision that cannot be made or read; the message says what is missing."""


@dataclass(frozen=True)
class Decision:
    """One judgement by a person. verdict: "released" or "held"; at: UTC, ISO 8601."""

    contract_digest: str
    rule: str
    verdict: str
    by: str
    at: str
    why: str


class Decided:
    """What the last decision on each rule of each contract says."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._last: dict[str, dict[str, str]] = defaultdict(dict)
        for one in decisions:
            self._last[one.contract_digest][one.rule] = one.verdict

    def is_clear(self, contract_digest: str, high: Iterable[str]) -> bool:
        """Whether a contract may enter prompts, embeddings and training rows: no person holds it,
        and each rule with a high finding about its tool was released for this very contract."""
        last = self._last.get(contract_digest, {})
        return HELD not in last.values() and all(last.get(rule) == RELEASED for rule in high)

    def find_held_digests(self) -> set[str]:
        """Digests of the contracts that a person holds: by the last decision on some rule."""
        return {digest for digest, last in self._last.items() if HELD in last.values()}


def record_decision(home: Path, decision: Decision) -> None:
    """Appends one decision; nothing is ever rewritten. Raises DecisionError on a bad one."""
    problem = _find_problem(decision)
    if problem:
        raise DecisionError(f"no decision: {problem}")
    path = home / _FILE
    with hold_lock(path.with_suffix(".lock")):
        append_line(path, json.dumps(asdict(decision), ensure_ascii=True, sort_keys=True))


def read_decisions(home: Path) -> list[Decision]:
    """All decisions, oldest first; [] before the first.

    Raises DecisionError on a line that is none: a record that was tampered with clears nothing.
    """
    path = home / _FILE
    if not path.exists():
        return []
    return [
        _parse_decision(line, f"{path}:{number}")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.strip()
    ]


def _parse_decision(line: str, where: str) -> Decision:
    try:
        found = Decision(**json.loads(line))
    except (TypeError, ValueError) as error:
        fix = (
            "look at it; `toolmill ledger repair` takes out what is no JSON and keeps the old file"
        )
        raise DecisionError(f"{where}: not a decision ({error}); {fix}") from error
    problem = _find_problem(found)
    if problem:
        raise DecisionError(f"{where}: {problem}")
    return found


def _find_problem(decision: Decision) -> str:
    parts = asdict(decision)
    empty = [
        name for name, value in parts.items() if not isinstance(value, str) or not value.strip()
    ]
    if empty:
        return f"{empty[0]} is empty, expected a text"
    if not decision.contract_digest.startswith(DIGEST_PREFIX):
        return f"contract_digest is {decision.contract_digest[:40]!r}, expected {DIGEST_PREFIX}…"
    if decision.verdict not in (RELEASED, HELD):
        return f"verdict is {decision.verdict[:40]!r}, expected {RELEASED!r} or {HELD!r}"
    return ""
