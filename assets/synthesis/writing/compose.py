"""Pairs: each unit's rows, many units at a time.

units -> (single, several, turns) -> rows of PAIRS, one for whatever became of each
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import (
    CLARIFY,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
)
from assets.synthesis.writing.tasks.dialogue import write_no_tool, write_recovery, write_vague
from assets.synthesis.writing.tasks.several import write_several
from assets.synthesis.writing.tasks.single import write_single
from assets.synthesis.writing.units import Unit, plan_units
from warehouse.llm.client import LLM
from warehouse.progress import Progress

Json = Any
Rows = list[dict[str, Json]]
Task = Callable[[Unit, str, LLM, SynthesisPolicy], Awaitable[Rows]]
# A unit waits for one role at a time, so that as many units as requests keep every role busy.
_LEAST_AT_ONCE = 48
_TASKS: dict[str, Task] = {
    SINGLE: write_single,
    LOOKALIKE: write_single,
    PARALLEL: write_several,
    SEQUENTIAL: write_several,
    NO_TOOL: write_no_tool,
    MISSING: write_vague,
    CLARIFY: write_vague,
    RECOVERY: write_recovery,
}


def compose_rows(
    made: Sequence[Unit],
    llm: LLM,
    policy: SynthesisPolicy,
    *,
    progress: Progress | None = None,
) -> Rows:
    """`compose_async`, run to its end in an event loop of its own."""
    return asyncio.run(compose_rows_async(made, llm, policy, progress=progress))


async def compose_rows_async(
    made: Sequence[Unit],
    llm: LLM,
    policy: SynthesisPolicy,
    *,
    progress: Progress | None = None,
) -> Rows:
    """The rows of `PAIRS` of all units, in their order.

    What fails (no answer, budget, a bad answer) is a row with status `failed`, the step, an
    error_kind and a hint; nothing is dropped and nothing raised but settings (LLMError
    unknown_role, no_provider) and a broken ledger.
    """
    plans = plan_units(made, llm, policy)
    rows: list[Rows] = [[] for _ in made]
    told = _Told(len(made), llm, progress)
    queue = iter(enumerate(made))

    async def work(queue: Iterator[tuple[int, Unit]]) -> None:
        for place, unit in queue:  # all workers share one iterator: no task waits in memory
            rows[place] = await _TASKS[unit.task](unit, plans[unit.key], llm, policy)
            told.done(rows[place])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(made), _count_workers(llm))):
                group.create_task(work(queue))
    except BaseExceptionGroup as errors:
        raise _find_first_error(errors) from errors
    finally:
        await llm.aclose()
    return [row for of_unit in rows for row in of_unit]


def _count_workers(llm: LLM) -> int:
    return max(_LEAST_AT_ONCE, sum(role.concurrency for role in llm.roles.values()))


def _find_first_error(errors: BaseExceptionGroup) -> BaseException:
    """The first error itself: a run that stops has one reason."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Told:
    """Progress over units: how far, and what it has cost so far."""

    def __init__(self, total: int, llm: LLM, progress: Progress | None) -> None:
        self._total, self._llm, self._progress = total, llm, progress
        self._units = self._rows = self._failed = 0

    def done(self, rows: Rows) -> None:
        self._units += 1
        self._rows += len(rows)
        self._failed += sum(row["status"] != "ok" for row in rows)
        if self._progress is None or (self._units % 25 and self._units < self._total):
            return
        told = {"rows": self._rows, "rows_failed": self._failed, **self._llm.figures()}
        self._progress.update("pairs", self._units, self._total, **told)
