"""One request, one call: generate, state what is absent, evolve, call, verify, check.

generator -> (reviser) -> evolver -> (reviser) -> caller -> rules -> checkers -> one row
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.role_schemas import Call, Draft, Requests
from assets.synthesis.common.tables import LOOKALIKE, text_of
from assets.synthesis.prompts import prompt
from assets.synthesis.verify.verify import Verification, decided
from assets.synthesis.writing.messages import calling, golden, user
from assets.synthesis.writing.profiles import KINDS, rng_of
from assets.synthesis.writing.row_builder import StepFailed, Writing, failed
from assets.synthesis.writing.scenario import World
from assets.synthesis.writing.tasks.invocation_check import STEP as CHECK
from assets.synthesis.writing.tasks.invocation_check import invocation_check
from assets.synthesis.writing.tasks.slotfill import evolved, worded
from assets.synthesis.writing.units import Row, Unit, count
from warehouse.ledger.ledger import BudgetExceeded
from warehouse.llm.client import LLM, LLMError, Reply

Json = Any
Values = dict[str, Json]


async def single(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> list[dict[str, Json]]:
    """The rows of a unit `single` or `lookalike`, one for each request asked for."""
    rows = [Writing(unit, plan, index, llm, policy) for index in range(count(unit, policy))]
    asked = Writing(unit, plan, 0, llm, policy)
    try:
        drafts, world = await requests(asked, rows)
    except StepFailed as failure:
        for row in rows:
            row.prompts, row.shown = dict(asked.prompts), dict(asked.shown)
        return [row.row(failure) for row in rows]
    return list(await asyncio.gather(*(_row(row, asked, drafts, len(rows), world) for row in rows)))


async def requests(writing: Writing, rows: list[Writing]) -> tuple[Reply[Requests], World]:
    """One request of the generator for the drafts of all `rows`, and the world they share."""
    unit = writing.unit
    contract, world = writing.contract(unit.own), writing.world()
    beside = unit.rivals if unit.task == LOOKALIKE else ()
    rivals = [writing.contract(row) for row in beside]
    kinds = [row.columns["kind"] for row in rows]
    reply = await writing.ask(
        "generate",
        "generator",
        Requests,
        [unit.own, *beside],
        {
            "contract": contract,
            "count": len(rows),
            "kinds": kinds,
            "profiles": [row.profile for row in rows],
            "environment": world,
            "rivals": rivals,
        },
        orders="\n".join(f"{n}. {order(row)}" for n, row in enumerate(rows, 1)),
    )
    return reply, world


def order(row: Writing) -> str:
    """A row's kind and profile, as prompts ask for them."""
    asked = ", ".join(f"{name}: {value}" for name, value in row.profile.items())
    return f"kind: {row.columns['kind']}, {asked}"


async def _row(
    writing: Writing, asked: Writing, drafts: Reply[Requests], rows: int, world: World
) -> dict[str, Json]:
    try:
        draft = taken(writing, asked, drafts, rows)
        text, values = await worded(writing, draft, world)
        text, values = await evolved(writing, text, values, world)
        unit = writing.unit
        arguments = await called_by(writing, unit.own, text, values)
        offered = mixed(writing, unit.shown) if unit.task == LOOKALIKE else [unit.own]
        messages = [user(text), calling(1, [(unit.own["tool"], arguments)])]
        writing.says(messages, [golden(unit.own, arguments)], offered)
        verification = writing.verified()
        if verification.verdict != "reject" and writing.policy.checks and unit.rivals:
            await _checked(writing, text, verification)
    except StepFailed as failure:
        return writing.row(failure)
    return writing.row()


def taken(writing: Writing, asked: Writing, drafts: Reply[Requests], rows: int) -> Draft:
    """The row's own draft, and its part of what all of them cost. Raises StepFailed when the
    generator wrote fewer than it was asked for."""
    writing.credit(asked, drafts, rows, writing.index)
    made = drafts.value.requests
    if writing.index >= len(made):
        found = f"{len(made)} requests of {rows}"
        raise StepFailed("generate", "too_few", found, "raise max_tokens of the generator")
    draft = made[writing.index]
    if draft.kind in KINDS:
        writing.columns["kind"] = draft.kind
    return draft


async def called_by(writing: Writing, row: Row, text: str, values: Values) -> Values:
    """The caller's arguments for a request to one tool."""
    contract = writing.contract(row)
    reply = await writing.ask(
        "call",
        "caller",
        Call,
        [row],
        {"contract": contract, "instruction": text, "values": values},
    )
    return writing.sound("call", reply.value.arguments)


def mixed(writing: Writing, rows: Sequence[Row]) -> list[Row]:
    """Tools in an order of the row's own: the right one has no place that gives it away."""
    draw = writing.unit.own, writing.unit.task, writing.index, writing.policy
    return rng_of(*draw, "offered").sample(list(rows), len(rows))


async def _checked(writing: Writing, text: str, verification: Verification) -> None:
    """Two checkers pick among the tool and its look-alikes."""
    unit, seed = writing.unit, writing.seed
    writing.prompts["choose"] = prompt("choose").digest
    writing.shown |= {row["contract_digest"]: row for row in unit.shown}
    try:
        checked = await invocation_check(writing.llm, text, unit.own, unit.rivals, seed=seed)
    except (LLMError, BudgetExceeded, ValueError) as error:
        raise failed(CHECK, error) from error
    writing.steps += checked.steps
    writing.columns["checks"] = text_of(checked.receipt())
    writing.judged(decided([*verification.findings, *checked.findings]))
