"""Repair: a call that does not fit its contract, made to fit where that takes no guessing.

1. arguments given as JSON text, or wrapped in `arguments`, `params`, …
2. a name by case, separators or a slip of the pen; never over a name that is there
3. a value by its form: text for a number, a boolean, a list or an object, and the reverse; one
   value for a list; a choice by case, separators or spelling; null for something optional, left out
   numbers with separators or a unit that the parameter counts in another; dates in its format
4. an argument on another level than the contract has it, or under a related name where one is
   missing and one is undeclared
5. what nobody declared and nothing is near to, dropped where the contract forbids it outright, but
   for what guards or narrows the call, or was said

Nothing that is missing is made up.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.repair.candidates import (
    Change,
    propose_changes,
    propose_drops,
    propose_levels,
    unwrap_arguments,
)
from assets.contracts.repair.problems import Problem, describe_problems
from assets.contracts.schema.step_budget import TooMuchWork, limit_steps
from assets.contracts.validate import Flaw, validate_call
from warehouse.json_types import Contract, Schema

_TRIES = 120  # validations of one repair; 13,163 golden calls with one fault took at most 5
_STEPS = 150_000  # of the work that all of them may take together: some 3 s
_DEEP = 3  # changes that only pay after another one: a text that holds an object with faults


@dataclass(frozen=True)
class Repaired:
    """arguments: as they are now. steps: what was changed, in words, in order. problems_left: as
    `problems_of`; [] for a call that fits."""

    arguments: Any
    steps: list[str] = field(default_factory=list)
    problems_left: list[Problem] = field(default_factory=list)


class _Exhausted(Exception):
    """The tries are spent."""


def repair_call(
    contract: Contract,
    arguments: Any,
    *,
    drop_undeclared: bool = False,
    is_said: Callable[[Any], bool] | None = None,
) -> Repaired:
    """The call with everything repaired that can be. Never raises; what cannot be judged within
    the bounds is left as it is. drop_undeclared: also what the contract does not name and does not
    forbid either. is_said: whether the user said a value, which then is not dropped."""
    flaws = validate_call(contract, arguments)
    if not flaws:
        return Repaired(arguments)
    schema = contract.get("inputSchema")
    if not isinstance(schema, Mapping) or _is_unusable(flaws):
        return Repaired(arguments, [], describe_problems(contract, arguments, flaws))
    try:
        with limit_steps(_STEPS) as work:
            found, left, steps = _Ladder(contract, schema, drop_undeclared, is_said).climb(
                deepcopy(arguments), flaws, _DEEP
            )
        spent = work.left < 0
    except (_Exhausted, TooMuchWork, RecursionError):
        spent = True
    if spent:  # half a repair would be another one the next time
        found, left, steps = arguments, flaws, []
    return Repaired(found, steps, describe_problems(contract, found, left))


@dataclass
class _Ladder:
    contract: Contract
    schema: Schema
    drop_undeclared: bool = False
    is_said: Callable[[Any], bool] | None = None
    tries: int = 0

    def climb(
        self, arguments: Any, flaws: list[Flaw], depth: int
    ) -> tuple[Any, list[Flaw], list[str]]:
        """Takes the first change that leaves fewer flaws until there is none."""
        steps: list[str] = []
        while flaws:
            step = self._try_step(arguments, flaws, depth)
            if step is None:
                break
            arguments, flaws, more = step
            steps += more
        return arguments, flaws, steps

    def _try_step(
        self, arguments: Any, flaws: list[Flaw], depth: int
    ) -> tuple[Any, list[Flaw], list[str]] | None:
        for change in self._list_changes(arguments, flaws):
            words = [change.step]
            made, left = change.made, self._find_flaws(change.made)
            if left is None:
                continue
            if left and change.opens and depth > 0 and _weigh_change(left) >= _weigh_change(flaws):
                made, left, more = self.climb(made, left, depth - 1)
                words += more
            if _weigh_change(left) < _weigh_change(flaws):
                return made, left, words
        return None

    def _list_changes(self, arguments: Any, flaws: list[Flaw]) -> Iterator[Change]:
        tool = str(self.contract.get("name", ""))
        yield from unwrap_arguments(self.schema, arguments, tool)
        if isinstance(arguments, Mapping):
            for flaw in flaws:
                yield from propose_changes(self.schema, arguments, flaw)
            if any(flaw.kind == "unknown_argument" for flaw in flaws):
                yield from propose_levels(self.schema, arguments, tool)
            for flaw in flaws:
                given = (self.drop_undeclared, self.is_said)
                yield from propose_drops(self.schema, arguments, flaw, *given)

    def _find_flaws(self, arguments: Any) -> list[Flaw] | None:
        """None where the arguments cannot be judged."""
        self.tries += 1
        if self.tries > _TRIES:
            raise _Exhausted
        flaws = validate_call(self.contract, arguments)
        return None if _is_unusable(flaws) else flaws


def _weigh_change(flaws: list[Flaw]) -> int:
    """What is no object at all is worse than any flaws in one (at most 50 are listed)."""
    return sum(100 if flaw.kind == "not_an_object" else 1 for flaw in flaws)


def _is_unusable(flaws: list[Flaw]) -> bool:
    return any(flaw.kind == "bad_schema" for flaw in flaws)
