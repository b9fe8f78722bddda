"""An actor that is a model: it reads five contracts and says which one it calls."""

import asyncio
from collections.abc import Sequence

import numpy as np

from assets.synthesis.role_schemas import ToolChoice
from assets.synthesis.writing.single_call import make_choice_messages
from benchmarks.outcomes.noise.endpoints import BEFORE
from benchmarks.outcomes.noise.play import Stage
from benchmarks.outcomes.noise.table import TaskFacts
from benchmarks.outcomes.simulator import SHOWN
from warehouse.llm.client import LLM, LLMError

ROLE = "checker_a"  # of the settings: who picks a tool for a request
AT_ONCE = 8


def value_by_model(
    stage: Stage, tasks: Sequence[TaskFacts], orders: Sequence[np.ndarray], llm: LLM
) -> np.ndarray:
    """Whether what the model takes of the first five succeeds, float [tasks]; one that takes none
    fails. Raises LLMError where nobody answers."""
    return asyncio.run(_value_tasks(stage, tasks, orders, llm))


async def _value_tasks(
    stage: Stage, tasks: Sequence[TaskFacts], orders: Sequence[np.ndarray], llm: LLM
) -> np.ndarray:
    places = asyncio.Semaphore(AT_ONCE)

    async def value_task(task: TaskFacts, order: np.ndarray) -> float:
        async with places:
            place = await choose_place(stage, task, order[:SHOWN], llm)
        return float(place is not None and stage.succeeds(task, place, BEFORE))

    work = (value_task(task, order) for task, order in zip(tasks, orders, strict=True))
    return np.array(await asyncio.gather(*work))


async def choose_place(stage: Stage, task: TaskFacts, shown: np.ndarray, llm: LLM) -> int | None:
    """The place of the tool that the model picks, in the order shown; None for no tool, and for an
    answer that cannot be used."""
    contracts = [dict(stage.pools[BEFORE].tools[place].contract) for place in shown.tolist()]
    messages = make_choice_messages(contracts, task.query)
    meta = {"contracts": contracts, "instruction": task.query}
    try:
        reply = await llm.complete(ROLE, messages, schema=ToolChoice, meta=meta)
    except LLMError as error:
        if error.kind in ("unknown_role", "no_provider"):
            raise
        return None
    number = reply.value.tool
    return int(shown[number - 1]) if 0 < number <= len(shown) else None
