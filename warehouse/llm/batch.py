"""Many records through one client: workers over one queue, in an event loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from warehouse.item_failure import describe_failure
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, LLMError
from warehouse.progress import Progress, Silent

Record = TypeVar("Record")
Result = TypeVar("Result")


def run_batch(
    records: Sequence[Record],
    work: Callable[[Record], Awaitable[Result]],
    llm: LLM,
    *,
    fail: Callable[[Record, str], Result],
    workers: int,
    stage: str,
    progress: Progress | None = None,
) -> list[Result]:
    """What `work` makes of each record, in their order; `stage` names it in the progress.

    Where `work` raises what nobody foresaw, the result is what `fail` makes of the record and a
    hint. The first error of the run (LLMError, BudgetExceeded, the ledger's, a full disk) stops all
    others and is raised as it is. The client is closed in any case. What goes through the Batch API
    is sent at the end; `work` met Pending for it.
    """

    async def work_or_fail(record: Record) -> Result:
        try:
            return await work(record)
        except Exception as error:
            return fail(record, describe_failure(error, (LLMError, BudgetExceeded)))

    llm.begin_stage(stage)
    try:
        found = asyncio.run(
            _run_workers(records, work_or_fail, llm, workers, stage, progress or Silent())
        )
    except BaseException:
        llm.drop_requests()
        raise
    llm.submit_requests()
    return found


async def _run_workers(
    records: Sequence[Record],
    work: Callable[[Record], Awaitable[Result]],
    llm: LLM,
    workers: int,
    stage: str,
    progress: Progress,
) -> list[Result]:
    found: dict[int, Result] = {}
    queue = iter(enumerate(records))

    async def drain() -> None:
        for place, record in queue:  # all workers share one iterator: no task waits in memory
            found[place] = await work(record)
            progress.update(stage, len(found), len(records), **llm.figures())

    tasks = [asyncio.create_task(drain()) for _ in range(min(len(records), workers))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await llm.aclose()
    return [found[place] for place in range(len(records))]
