"""Tasks of several calls: side by side (`parallel`), or the second fed by the first (`sequential`).

generator -> request and calls -> (reviser) -> [actor -> result -> (caller)] -> rules -> one row
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.role_schemas import Acted, Several, Step
from assets.synthesis.common.tables import PARALLEL, Golden, text_of
from assets.synthesis.verify.grounding.grounding import Text
from assets.synthesis.verify.verify import worst_grade
from assets.synthesis.writing.messages import calling, golden, result, user
from assets.synthesis.writing.row_builder import StepFailed, Writing
from assets.synthesis.writing.scenario import World
from assets.synthesis.writing.tasks.single import called_by, order
from assets.synthesis.writing.tasks.slotfill import absent, revised
from assets.synthesis.writing.tool_chains import chained, link
from assets.synthesis.writing.units import Row, Unit
from warehouse.llm.client import LLM

Json = Any
MOST_CALLS = 3
_STEP = "several"
_AGAIN = "another model or seed may help"


async def several(
    unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy
) -> list[dict[str, Json]]:
    """The one row of a unit `parallel` or `sequential`."""
    writing = Writing(unit, plan, 0, llm, policy)
    try:
        rows = _in_order(writing)
        world = writing.world()
        text, steps = await _written(writing, rows, world)
        text, steps = await _stated(writing, rows, text, steps, world)
        if unit.task == PARALLEL:
            messages = [
                user(text),
                calling(1, [(rows[s.tool - 1]["tool"], s.arguments) for s in steps]),
            ]
        else:
            messages, steps = await _one_by_one(writing, rows, text, steps)
        calls = [_golden(rows, step) for step in steps]
        writing.says(messages, calls, unit.rows, simulated=unit.task != PARALLEL)
        writing.verified()
    except StepFailed as failure:
        return [writing.row(failure)]
    return [writing.row()]


def _in_order(writing: Writing) -> list[Row]:
    """The unit's tools as they are shown: in a sequence the one that goes first comes first."""
    rows = list(writing.unit.rows)
    if writing.unit.task == PARALLEL or len(rows) < 2:
        return rows
    first, second = (link(writing.contract(row)) for row in rows)
    return rows if chained(first, second)[0] else rows[::-1]


async def _written(writing: Writing, rows: Sequence[Row], world: World) -> tuple[str, list[Step]]:
    contracts = [writing.contract(row) for row in rows]
    shape = writing.unit.task
    reply = await writing.ask(
        _STEP,
        "generator",
        Several,
        rows,
        {
            "contracts": contracts,
            "shape": shape,
            "profile": writing.profile,
            "environment": world,
        },
        order=order(writing),
    )
    writing.by(reply)
    text = writing.request(_STEP, reply.value.instruction)
    steps = [step.model_copy(update={"arguments": writing.sound(_STEP, step.arguments)})
             for step in reply.value.calls]  # fmt: skip
    if flaw := _misshapen(shape, steps, len(rows)):
        raise StepFailed(_STEP, *flaw, _AGAIN)
    return text, steps


def _misshapen(shape: str, steps: Sequence[Step], tools: int) -> tuple[str, str] | None:
    """(error kind, what was found) where calls are not the task that was asked for."""
    used = {step.tool for step in steps}
    if unknown := used - set(range(1, tools + 1)):
        return "wrong_tool", f"a call to tool {min(unknown)} of {tools}"
    if len(used) < tools:
        return "wrong_tool", f"{len(used)} of {tools} tools are called"
    if len(steps) > MOST_CALLS:
        return "wrong_calls", f"{len(steps)} calls, at most {MOST_CALLS}"
    if shape == PARALLEL:
        if any(step.borrowed for step in steps):
            return "wrong_calls", "calls that should run side by side need each other's results"
        made = [(step.tool, text_of(step.arguments)) for step in steps]
        if len(set(made)) < len(made):
            return "wrong_calls", "the same call twice"
        return None
    if [step.tool for step in steps] != list(range(1, tools + 1)):
        return "wrong_calls", "the calls are not one of each tool, in the order shown"
    if steps[0].borrowed or not any(step.borrowed for step in steps[1:]):
        return "wrong_calls", "no later call takes a value out of an earlier result"
    return None


async def _stated(
    writing: Writing, rows: Sequence[Row], text: str, steps: list[Step], world: World
) -> tuple[str, list[Step]]:
    """The request with every required value in its words but for those that results supply."""
    lacking = [(at, names) for at, step in enumerate(steps)
               if (names := _absent(writing, rows, text, step))]  # fmt: skip
    for at, names in lacking:
        step = steps[at]
        row = rows[step.tool - 1]
        text, values = await revised(writing, row, text, step.arguments, names, world)
        steps[at] = step.model_copy(update={"arguments": values})
    for step in steps if lacking else ():
        if names := [n for n in _absent(writing, rows, text, step) if n in step.arguments]:
            raise StepFailed("revise", "not_stated", f"the text lacks {', '.join(names)}", _AGAIN)
    return text, steps


def _absent(writing: Writing, rows: Sequence[Row], text: str, step: Step) -> list[str]:
    contract = writing.contract(rows[step.tool - 1])
    return [name for name in absent(contract, text, step.arguments) if name not in step.borrowed]


async def _one_by_one(
    writing: Writing, rows: Sequence[Row], text: str, steps: Sequence[Step]
) -> tuple[list[dict[str, Json]], list[Step]]:
    """The conversation of a sequence: each call, and what an actor in the tool's place returns."""
    messages: list[dict[str, Json]] = [user(text)]
    results: list[str] = []
    made: list[Step] = []
    for number, planned in enumerate(steps, 1):
        row = rows[planned.tool - 1]
        step = await _fed(writing, row, text, planned, results) if planned.borrowed else planned
        made.append(step)
        messages.append(calling(number, [(row["tool"], step.arguments)]))
        if number < len(steps):
            results.append(await _acted(writing, row, step, steps[number:]))
            messages.append(result(number, results[-1]))
    return messages, made


async def _acted(writing: Writing, row: Row, step: Step, later: Sequence[Step]) -> str:
    """The actor's result, asked to hold what later calls are meant to take out of it."""
    contract = writing.contract(row)
    holds = {name: after.arguments[name] for after in later for name in after.borrowed
             if name in after.arguments}  # fmt: skip
    reply = await writing.ask(
        "act",
        "actor",
        Acted,
        [row],
        {"contract": contract, "arguments": step.arguments},
        holds=text_of(holds),
    )
    return writing.heed("act", reply.value.content, spoken=False)


async def _fed(writing: Writing, row: Row, text: str, step: Step, results: Sequence[str]) -> Step:
    """The call with what it borrows out of the results: as planned where the results hold it, else
    as the caller reads them."""
    if not _unheld(step.arguments, step.borrowed, results):
        return step
    told = "\n".join([text, *(f"What an earlier step returned: {one}" for one in results)])
    arguments = await called_by(writing, row, told, step.arguments)
    if names := _unheld(arguments, step.borrowed, results):
        found = f"no earlier result holds {', '.join(names)}"
        raise StepFailed("call", "not_borrowed", found, _AGAIN)
    return step.model_copy(update={"arguments": arguments})


def _unheld(
    arguments: Mapping[str, Json], borrowed: Sequence[str], results: Sequence[str]
) -> list[str]:
    """The borrowed arguments that no result states."""
    held = Text("\n".join(results))
    return [
        name
        for name in borrowed
        if name not in arguments or worst_grade(name, arguments[name], held) != "stated"
    ]


def _golden(rows: Sequence[Row], step: Step) -> Golden:
    return golden(rows[step.tool - 1], step.arguments, step.borrowed)
