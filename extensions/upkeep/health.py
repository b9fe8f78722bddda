"""The frame of `toolmill doctor`: claims about a home, each with a search for counter-examples."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random

from warehouse.errors import UnusableInput
from warehouse.ledger.database import LedgerUnavailable
from warehouse.storage.blobs import Blobs
from warehouse.storage.tables import Tables

BROKEN, NOTICE = "broken", "notice"


@dataclass(frozen=True)
class CheckFinding:
    """One thing for which a claim does not hold, by its name in the home. problem: found and
    expected. fix: a command, or what to do. level: `broken`, or `notice` for what works."""

    thing: str
    problem: str
    fix: str
    level: str = BROKEN


@dataclass(frozen=True)
class InspectedHome:
    """What a check reads. everything: read all of what is otherwise sampled. now: epoch seconds."""

    home: Path
    state: Path
    everything: bool = False
    sample: int = 200
    now: float = field(default_factory=time.time)

    @cached_property
    def tables(self) -> Tables:
        return Tables(self.home / "tables")

    @cached_property
    def blobs(self) -> Blobs:
        return Blobs(self.home / "blobs")

    def choose_sample(self, items: Iterable[str]) -> list[str]:
        distinct = sorted(set(items))
        if self.everything or len(distinct) <= self.sample:
            return distinct
        return Random().sample(distinct, self.sample)


@dataclass(frozen=True)
class CheckOutcome:
    n: int
    findings: list[CheckFinding] = field(default_factory=list)


@dataclass(frozen=True)
class HomeCheck:
    """name: one word. claim: what holds where nothing is found."""

    name: str
    claim: str
    look: Callable[[InspectedHome], CheckOutcome]


@dataclass(frozen=True)
class CheckResult:
    """A check with its outcome. That it could not look is a finding too."""

    name: str
    claim: str
    n: int
    seconds: float
    findings: list[CheckFinding]

    @property
    def broken(self) -> list[CheckFinding]:
        return [finding for finding in self.findings if finding.level == BROKEN]


def run_check(check: HomeCheck, home: InspectedHome) -> CheckResult:
    """Runs one check. Whatever goes wrong in it is a finding: no check ends the others."""
    began = time.monotonic()
    try:
        outcome = check.look(home)
    except (UnusableInput, LedgerUnavailable) as error:  # the message of ours ends with the fix
        message = " ".join(str(error).split())
        problem, sign, fix = message.rpartition("; " if "; " in message else ": ")
        fix = fix if sign else "correct what it names"
        problem = f"cannot be checked: {problem or message}"
        outcome = CheckOutcome(0, [CheckFinding(check.name, problem, fix)])
    except Exception as error:  # a damaged home breaks what reads it in ways nobody listed
        reason = " ".join(str(error).split())[:300]
        problem = f"cannot be checked: {type(error).__name__}: {reason}"
        outcome = CheckOutcome(0, [CheckFinding(check.name, problem, "see the other findings")])
    seconds = round(time.monotonic() - began, 3)
    return CheckResult(check.name, check.claim, outcome.n, seconds, outcome.findings)
