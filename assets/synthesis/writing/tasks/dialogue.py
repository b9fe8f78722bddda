"""Tasks of several turns: no tool fits, a value is missing or asked for, a call is repaired."""

from typing import Any

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.role_schemas import Aside, Call, Vague
from assets.synthesis.common.tables import MISSING
from assets.synthesis.writing.messages import (
    make_assistant_message,
    make_call_message,
    make_golden,
    make_result_message,
    make_user_message,
)
from assets.synthesis.writing.partners import list_required
from assets.synthesis.writing.profiles import make_rng
from assets.synthesis.writing.row_builder import StepFailed, Writing
from assets.synthesis.writing.tasks.single import (
    ask_call_of,
    ask_requests,
    format_order,
    shuffle_tools,
    take_draft,
)
from assets.synthesis.writing.tasks.slotfill import state_request
from assets.synthesis.writing.tasks.wrong_calls import make_wrong_call
from assets.synthesis.writing.units import Unit
from warehouse.llm.client import LLM, Reply

Json = Any
Rows = list[dict[str, Json]]


async def write_no_tool(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> Rows:
    """A request that none of the tools at hand can serve, and the answer without them."""
    writing = Writing(unit, plan, 0, llm, policy)
    try:
        offered = shuffle_tools(writing, unit.shown)
        contracts = [writing.read_contract(row) for row in offered]
        reply = await writing.ask(
            "no_tool",
            "generator",
            Aside,
            offered,
            {"contracts": contracts, "profile": writing.profile},
            order=format_order(writing),
        )
        writing.set_writer(reply)
        text = writing.set_request("no_tool", reply.value.instruction)
        said = writing.check_text("no_tool", reply.value.reply)
        writing.set_conversation(
            [make_user_message(text), make_assistant_message(said)], [], offered
        )
        writing.verify_row()
    except StepFailed as failure:
        return [writing.make_row(failure)]
    return [writing.make_row()]


async def write_vague(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> Rows:
    """A request that lacks a value and the question for it; for `clarification` also the answer
    and the call that then is right."""
    writing = Writing(unit, plan, 0, llm, policy)
    try:
        reply = await _ask_vague(writing)
        said = reply.value
        text = writing.set_request("missing", said.instruction)
        messages = [
            make_user_message(text),
            make_assistant_message(writing.check_text("missing", said.question)),
        ]
        if unit.task == MISSING:
            writing.set_conversation(messages, [], [unit.own])
        else:
            answer = writing.check_text("missing", said.answer)
            values = writing.check_values("missing", said.values)
            whole = f"{text}\n{said.question.strip()}\n{answer}"
            arguments = await ask_call_of(writing, unit.own, whole, values)
            messages += [
                make_user_message(answer),
                make_call_message(1, [(unit.own["tool"], arguments)]),
            ]
            writing.set_conversation(messages, [make_golden(unit.own, arguments)], [unit.own])
        writing.verify_row()
    except StepFailed as failure:
        return [writing.make_row(failure)]
    return [writing.make_row()]


async def _ask_vague(writing: Writing) -> Reply[Vague]:
    unit = writing.unit
    contract, world = writing.read_contract(unit.own), writing.draw_world()
    names = list_required(contract)
    if not names:
        found = "the contract requires no value"
        raise StepFailed("missing", "nothing_missing", found, "plan it for another tool")
    rng = make_rng(unit.own, unit.task, writing.index, writing.policy, "parameter")
    name = rng.choice(sorted(names))
    reply = await writing.ask(
        "missing",
        "generator",
        Vague,
        [unit.own],
        {
            "contract": contract,
            "parameter": name,
            "profile": writing.profile,
            "environment": world,
        },
        order=format_order(writing),
    )
    writing.set_writer(reply)
    return reply


async def write_recovery(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> Rows:
    """A request, a call that the contract refuses, the refusal, and the repaired call."""
    writing = Writing(unit, plan, 0, llm, policy)
    asked = Writing(unit, plan, 0, llm, policy)
    try:
        try:
            drafts, world = await ask_requests(asked, [writing])
        except StepFailed:
            writing.prompts, writing.shown = asked.prompts, asked.shown
            raise
        text, values = await state_request(writing, take_draft(writing, asked, drafts, 1), world)
        right = await ask_call_of(writing, unit.own, text, values)
        contract = writing.read_contract(unit.own)
        rng = make_rng(unit.own, unit.task, writing.index, policy, "wrong")
        wrong = make_wrong_call(contract, right, rng)
        if wrong is None:
            found = "the contract refuses no call like the right one"
            raise StepFailed("wrong_call", "no_wrong_call", found, "it stays without this task")
        repaired = await writing.ask(
            "repair",
            "caller",
            Call,
            [unit.own],
            {
                "contract": contract,
                "instruction": text,
                "values": right,
                "wrong": wrong.arguments,
                "error": wrong.error,
            },
        )
        arguments = writing.check_values("repair", repaired.value.arguments)
        tool = unit.own["tool"]
        messages = [
            make_user_message(text),
            make_call_message(1, [(tool, wrong.arguments)]),
            make_result_message(1, wrong.error),
            make_call_message(2, [(tool, arguments)]),
        ]
        # The contract's own validator said it, but no server did.
        writing.set_conversation(
            messages, [make_golden(unit.own, arguments)], [unit.own], simulated=True
        )
        writing.verify_row()
    except StepFailed as failure:
        return [writing.make_row(failure)]
    return [writing.make_row()]
