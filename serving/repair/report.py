"""What the repair ladder answers: the call, what each rung did, and why it stopped."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

VALID, REPAIRED, ABSTAINED = "valid", "repaired", "abstained"
PASSED, CHANGED, FAILED, SKIPPED = "passed", "changed", "failed", "skipped"
RUNGS = ("parse", "tool", "validate", "coerce", "history", "fill", "revise", "verify")


@dataclass(frozen=True)
class RungReport:
    """rung: of RUNGS. outcome: passed (nothing to do), changed, failed (what is wrong is still
    there) or skipped. what: each change, in words. why: what the rung found. ms: time it took."""

    rung: str
    outcome: str
    what: list[str] = field(default_factory=list)
    why: str = ""
    ms: float = 0.0


@dataclass(frozen=True)
class AbstainReason:
    """Why a call was left. kind: no_call, several_calls, too_large, too_deep, unreadable, cut_off,
    unknown_tool, ambiguous_tool, bad_schema, missing_value or unfit_value. path: where, as
    `$.filters[0].name`. question: what to ask whoever can tell, in one sentence."""

    kind: str
    question: str
    path: str = "$"


@dataclass(frozen=True)
class RepairReport:
    """outcome: valid (the draft, byte for byte), repaired, or abstained (`name`, `arguments` and
    `text` are then the draft's own, and `reason` says why). text: the arguments as JSON text; of
    a valid draft whose arguments came as text, that text itself. problems: what is still wrong, as
    `find_problems` lists it."""

    outcome: str
    name: str
    arguments: Any
    text: str
    rungs: list[RungReport]
    server: str | None = None
    id: str | None = None
    reason: AbstainReason | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return self.outcome == REPAIRED

    @property
    def steps(self) -> list[str]:
        """Every change of every rung, in order; none of an abstained call, whose draft stands."""
        made = [] if self.outcome == ABSTAINED else self.rungs
        return [item for rung in made for item in rung.what]

    @property
    def ms(self) -> float:
        return round(sum(rung.ms for rung in self.rungs), 3)

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "steps": self.steps, "ms": self.ms}


def write_arguments(value: Any) -> str:
    """Arguments as JSON text; what JSON cannot hold is written as text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "null"
