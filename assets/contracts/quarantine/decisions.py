"""Decisions: who released or held a tool, on which rule, when and why.

A decision is about one contract, by its digest: a tool that changes is judged anew.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assets.contracts.canonical import DIGEST_PREFIX
from warehouse.storage.decisions import DecisionFile

RELEASED, HELD = "released", "held"
ANY_RULE = "*"  # holds the contract whatever was found; releasing it lifts that hold and no other


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
        for decision in decisions:
            self._last[decision.contract_digest][decision.rule] = decision.verdict

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
    _FILE.record(home, decision)


def read_decisions(home: Path) -> list[Decision]:
    """All decisions, oldest first; [] before the first.

    Raises DecisionError on a line that is none: a record that was tampered with clears nothing.
    """
    return _FILE.read(home)


def _find_problem(decision: Decision) -> str:
    if not decision.contract_digest.startswith(DIGEST_PREFIX):
        return f"contract_digest is {decision.contract_digest[:40]!r}, expected {DIGEST_PREFIX}…"
    if decision.verdict not in (RELEASED, HELD):
        return f"verdict is {decision.verdict[:40]!r}, expected {RELEASED!r} or {HELD!r}"
    return ""


_FILE = DecisionFile(
    Path("quarantine") / "decisions.jsonl",
    Decision,
    _find_problem,
    DecisionError,
    "look at it; `toolmill ledger repair` takes out what is no JSON and keeps the old file",
)
