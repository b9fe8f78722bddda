"""Tasks of several turns: no tool fits, a value is missing or asked for, a call is repaired."""

from typing import Any

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.role_schemas import Aside, Call, Vague
from assets.synthesis.common.tables import MISSING
from assets.synthesis.writing.messages import assistant, calling, golden, result, user
from assets.synthesis.writing.partners import required
from assets.synthesis.writing.profiles import rng_of
from assets.synthesis.writing.row_builder import StepFailed, Writing
from assets.synthesis.writing.tasks.single import called_by, mixed, order, requests, taken
from assets.synthesis.writing.tasks.slotfill import worded
from assets.synthesis.writing.tasks.wrong_calls import wrong_call
from assets.synthesis.writing.units import Unit
from warehouse.llm.client import LLM, Reply

Json = Any
Rows = list[dict[str, Json]]


async def no_tool(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> Rows:
    """A request that none of the tools at hand can serve, and the answer without them."""
    writing = Writing(unit, plan, 0, llm, policy)
    try:
        offered = mixed(writing, unit.shown)
        contracts = [writing.contract(row) for row in offered]
        reply = await writing.ask(
            "no_tool",
            "generator",
            Aside,
            offered,
            {"contracts": contracts, "profile": writing.profile},
            order=order(writing),
        )
        writing.by(reply)
        text = writing.request("no_tool", reply.value.instruction)
        said = writing.heed("no_tool", reply.value.reply)
        writing.says([user(text), assistant(said)], [], offered)
        writing.verified()
    except StepFailed as failure:
        return [writing.row(failure)]
    return [writing.row()]


async def vague(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> Rows:
    """A request that lacks a value and the question for it; for `clarification` also the answer
    and the call that then is right."""
    writing = Writing(unit, plan, 0, llm, policy)
    try:
        reply = await _vague(writing)
        said = reply.value
        text = writing.request("missing", said.instruction)
        messages = [user(text), assistant(writing.heed("missing", said.question))]
        if unit.task == MISSING:
            writing.says(messages, [], [unit.own])
        else:
            answer = writing.heed("missing", said.answer)
            values = writing.sound("missing", said.values)
            whole = f"{text}\n{said.question.strip()}\n{answer}"
            arguments = await called_by(writing, unit.own, whole, values)
            messages += [user(answer), calling(1, [(unit.own["tool"], arguments)])]
            writing.says(messages, [golden(unit.own, arguments)], [unit.own])
        writing.verified()
    except StepFailed as failure:
        return [writing.row(failure)]
    return [writing.row()]


async def _vague(writing: Writing) -> Reply[Vague]:
    unit = writing.unit
    contract, world = writing.contract(unit.own), writing.world()
    names = required(contract)
    if not names:
        found = "the contract requires no value"
        raise StepFailed("missing", "nothing_missing", found, "plan it for another tool")
    rng = rng_of(unit.own, unit.task, writing.index, writing.policy, "parameter")
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
        order=order(writing),
    )
    writing.by(reply)
    return reply


async def recovery(unit: Unit, plan: str, llm: LLM, policy: SynthesisPolicy) -> Rows:
    """A request, a call that the contract refuses, the refusal, and the repaired call."""
    writing = Writing(unit, plan, 0, llm, policy)
    asked = Writing(unit, plan, 0, llm, policy)
    try:
        try:
            drafts, world = await requests(asked, [writing])
        except StepFailed:
            writing.prompts, writing.shown = asked.prompts, asked.shown
            raise
        text, values = await worded(writing, taken(writing, asked, drafts, 1), world)
        right = await called_by(writing, unit.own, text, values)
        contract = writing.contract(unit.own)
        rng = rng_of(unit.own, unit.task, writing.index, policy, "wrong")
        wrong = wrong_call(contract, right, rng)
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
        arguments = writing.sound("repair", repaired.value.arguments)
        tool = unit.own["tool"]
        messages = [
            user(text),
            calling(1, [(tool, wrong.arguments)]),
            result(1, wrong.error),
            calling(2, [(tool, arguments)]),
        ]
        # The contract's own validator said it, but no server did.
        writing.says(messages, [golden(unit.own, arguments)], [unit.own], simulated=True)
        writing.verified()
    except StepFailed as failure:
        return [writing.row(failure)]
    return [writing.row()]
