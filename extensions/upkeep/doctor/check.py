"""What a check of a home is: a claim, and a look that yields what speaks against it."""

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
REPAIR = "toolmill ledger repair"
RUN = "toolmill run"


@dataclass(frozen=True)
class Finding:
    """One thing for which a claim does not hold.

    thing: by its name in the home. problem: what was found and what was expected. fix: the command,
    or what to do. level: `broken`, or `notice` for what works and is worth knowing.
    """

    thing: str
    problem: str
    fix: str
    level: str = BROKEN


@dataclass(frozen=True)
class Home:
    """What a check may look at. It writes nothing there.

    everything: read all of what is otherwise sampled. now: epoch seconds.
    """

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

    def choose_some(self, items: Iterable[str]) -> list[str]:
        """All of the items, or as many as a sample holds, drawn anew each time."""
        known = sorted(set(items))
        if self.everything or len(known) <= self.sample:
            return known
        return Random().sample(known, self.sample)


@dataclass(frozen=True)
class Looked:
    """What a look came to. n: things looked at."""

    n: int
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """name: one word. claim: what holds where nothing is found."""

    name: str
    claim: str
    look: Callable[[Home], Looked]


@dataclass(frozen=True)
class Result:
    """One check's outcome. findings: what it found; that it could not look is one too."""

    name: str
    claim: str
    n: int
    seconds: float
    findings: list[Finding]

    @property
    def broken(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == BROKEN]


def run_check(check: Check, at: Home) -> Result:
    """Looks once. Whatever goes wrong in the look is a finding: no check ends the others."""
    began = time.monotonic()
    try:
        looked = check.look(at)
    except (UnusableInput, LedgerUnavailable) as error:  # ours end with the fix
        problem, fix = _split_fix(" ".join(str(error).split()))
        looked = Looked(0, [Finding(check.name, f"cannot be looked at: {problem}", fix)])
    except Exception as error:  # a damaged home breaks what reads it in ways nobody listed
        reason = " ".join(str(error).split())[:300]
        problem = f"cannot be looked at: {type(error).__name__}: {reason}"
        looked = Looked(0, [Finding(check.name, problem, "see the other findings first")])
    seconds = round(time.monotonic() - began, 3)
    return Result(check.name, check.claim, looked.n, seconds, looked.findings)


def _split_fix(message: str) -> tuple[str, str]:
    """What is wrong, and what to do: the last part of an error of ours."""
    problem, sign, fix = message.rpartition("; " if "; " in message else ": ")
    return (problem, fix) if sign else (message, "correct what it names")
