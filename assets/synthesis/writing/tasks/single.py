"""One request, one call: generate, state what is absent, evolve, call, verify, check.

generator -> (reviser) -> evolver -> (reviser) -> caller -> rules -> checkers -> one row
"""

import asyncio
from collections.abc import Sequence

from assets.synthesis.common.messages import make_call_message, make_golden, make_user_message
from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.role_schemas import Call, Draft, Requests
from assets.synthesis.common.tables import LOOKALIKE, dump_text
from assets.synthesis.prompts import read_prompt
from assets.synthesis.verify.verify import Verification, decide
from assets.synthesis.writing.failures import StepFailed, check_values, make_step_failure
from assets.synthesis.writing.profiles import KINDS, make_rng
from assets.synthesis.writing.row_builder import Writing
from assets.synthesis.writing.tasks.invocation_check import STEP as CHECK
from assets.synthesis.writing.tasks.invocation_check import check_invocation
from assets.synthesis.writing.tasks.slotfill import evolve_request, state_request
from assets.synthesis.writing.units import Row, Unit, count_rows
from warehouse.json_types import Json
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, LLMError, Reply

Values = dict[str, Json]


async def write_single(
    unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy
) -> list[dict[str, Json]]:
    """The rows of a unit `single` or `lookalike`, one for each request asked for."""
    rows = [Writing(unit, plan, index, llm, policy) for index in range(count_rows(unit, policy))]
    asked = Writing(unit, plan, 0, llm, policy)
    try:
        drafts = await ask_requests(asked, rows)
    except StepFailed as failure:
        for row in rows:
            row.prompts, row.shown = dict(asked.prompts), dict(asked.shown)
        return [row.make_row(failure) for row in rows]
    return list(await asyncio.gather(*(_write_row(row, asked, drafts, len(rows)) for row in rows)))


async def ask_requests(writing: Writing, rows: list[Writing]) -> Reply[Requests]:
    """One request of the generator for the drafts of all `rows`, which share its world."""
    unit = writing.unit
    beside = unit.rivals if unit.task == LOOKALIKE else ()
    meta = {
        "count": len(rows),
        "kinds": [row.columns["kind"] for row in rows],
        "profiles": [row.profile for row in rows],
        "environment": writing.world,
        "rivals": [writing.read_contract(row) for row in beside],
    }
    orders = "\n".join(f"{n}. {format_order(row)}" for n, row in enumerate(rows, 1))
    return await writing.ask("generate", Requests, unit.own, meta, beside, orders=orders)


def format_order(row: Writing) -> str:
    """A row's kind and profile, as prompts ask for them."""
    asked = ", ".join(f"{name}: {value}" for name, value in row.profile.items())
    return f"kind: {row.columns['kind']}, {asked}"


async def _write_row(
    writing: Writing, asked: Writing, drafts: Reply[Requests], rows: int
) -> dict[str, Json]:
    try:
        draft = take_draft(writing, asked, drafts, rows)
        text, values = await state_request(writing, draft)
        text, values = await evolve_request(writing, text, values)
        unit = writing.unit
        arguments = await ask_call_of(writing, unit.own, text, values)
        offered = shuffle_tools(writing, unit.shown) if unit.task == LOOKALIKE else [unit.own]
        messages = [make_user_message(text), make_call_message(1, [(unit.own["tool"], arguments)])]
        writing.set_conversation(messages, [make_golden(unit.own, arguments)], offered)
        verification = writing.verify_row()
        if verification.verdict != "reject" and writing.policy.checks and unit.rivals:
            await _check_choice(writing, text, verification)
    except StepFailed as failure:
        return writing.make_row(failure)
    return writing.make_row()


def take_draft(writing: Writing, asked: Writing, drafts: Reply[Requests], rows: int) -> Draft:
    """The row's own draft, and its part of what all of them cost. Raises StepFailed when the
    generator wrote fewer than it was asked for."""
    writing.credit_reply(asked, drafts, rows, writing.index)
    made = drafts.value.requests
    if writing.index >= len(made):
        found = f"{len(made)} requests of {rows}"
        raise StepFailed("generate", "too_few", found, "raise max_tokens of the generator")
    draft = made[writing.index]
    if draft.kind in KINDS:
        writing.columns["kind"] = draft.kind
    return draft


async def ask_call_of(writing: Writing, row: Row, text: str, values: Values) -> Values:
    """The caller's arguments for a request to one tool."""
    reply = await writing.ask("call", Call, row, {"instruction": text, "values": values})
    return check_values("call", reply.value.arguments)


def shuffle_tools(writing: Writing, rows: Sequence[Row]) -> list[Row]:
    """Tools in an order of the row's own: the right one has no place that gives it away."""
    draw = writing.unit.own, writing.unit.task, writing.index, writing.policy
    return make_rng(*draw, "offered").sample(list(rows), len(rows))


async def _check_choice(writing: Writing, text: str, verification: Verification) -> None:
    """Two checkers pick among the tool and its look-alikes."""
    unit, seed = writing.unit, writing.seed
    writing.prompts["choose"] = read_prompt("choose").digest
    writing.shown |= {row["contract_digest"]: row for row in unit.shown}
    try:
        checked = await check_invocation(writing.llm, text, unit.own, unit.rivals, seed=seed)
    except (LLMError, BudgetExceeded, ValueError) as error:
        raise make_step_failure(CHECK, error) from error
    writing.steps += checked.steps
    writing.columns["checks"] = dump_text(checked.as_json())
    writing.set_verdict(decide([*verification.findings, *checked.findings]))
