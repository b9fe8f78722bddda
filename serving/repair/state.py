"""A draft on its way up the ladder: what every rung reads and what it may change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.history.moves import ContractHistory
from assets.contracts.repair.repair import repair_call
from assets.contracts.validate import Flaw, validate_call
from serving.repair.drafts import Draft
from serving.repair.evidence import Evidence
from serving.repair.report import CHANGED, FAILED, PASSED, SKIPPED, Reason, RungReport
from serving.repair.revision import Revise
from serving.repair.tools import Candidate, Toolset


@dataclass(frozen=True)
class Step:
    """What one rung did; see RungReport."""

    outcome: str
    what: list[str] = field(default_factory=list)
    why: str = ""

    @classmethod
    def skip(cls, why: str = "") -> "Step":
        return cls(SKIPPED, [], why)

    @classmethod
    def fail(cls, why: str) -> "Step":
        return cls(FAILED, [], why)

    @classmethod
    def change(cls, what: list[str], why: str = "") -> "Step":
        return cls(CHANGED if what else PASSED, what, why)


@dataclass
class State:
    """parsed: the arguments as the draft has them, read. cut: the path of a last value that may go
    on. meant: the tools that the name may mean. flaws: of `arguments` against `candidate`, None
    before both are known. reason: set where the ladder ends without a call."""

    draft: Draft
    toolset: Toolset
    messages: Sequence[Mapping[str, Any]]
    history: ContractHistory | None
    revise: Revise | None
    evidence: Evidence
    rungs: list[RungReport] = field(default_factory=list)
    arguments: Any = None
    parsed: Any = None
    cut: str | None = None
    candidate: Candidate | None = None
    meant: list[Candidate] = field(default_factory=list)
    flaws: list[Flaw] | None = None
    reason: Reason | None = None

    @property
    def is_changed(self) -> bool:
        return any(rung.what for rung in self.rungs)

    def stop(self, kind: str, question: str, path: str = "$") -> Step:
        """Ends the ladder here."""
        self.reason = Reason(kind, question, path)
        return Step.fail(question)

    def choose(self, found: Sequence[Candidate]) -> Candidate | None:
        """Of several tools of one name the one that takes the arguments as they are, else the one
        whose server the conversation names."""
        if len(found) <= 1:
            return found[0] if found else None
        fit = [one for one in found if not validate_call(one.contract, self.arguments)]
        left = fit or list(found)
        mentioned = [one for one in left if one.server and self.evidence.holds(one.server)]
        return left[0] if len(left) == 1 else mentioned[0] if len(mentioned) == 1 else None

    def take_repaired(self, candidate: Candidate, arguments: Any) -> list[str]:
        """Takes what `repair_call` makes of arguments; its steps."""
        said = self.evidence.is_said
        made = repair_call(candidate.contract, arguments, drop_undeclared=True, is_said=said)
        self.arguments = made.arguments
        self.flaws = validate_call(candidate.contract, self.arguments)
        return list(made.steps)
