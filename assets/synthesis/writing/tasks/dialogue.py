"""Tasks of several turns: no tool fits, a value is missing or asked for, a call is repaired."""

from assets.synthesis.common.messages import (
    make_assistant_message,
    make_call_message,
    make_golden,
    make_result_message,
    make_user_message,
)
from assets.synthesis.common.role_schemas import Aside, Call, Vague
from assets.synthesis.common.tables import MISSING
from assets.synthesis.common.wrong_calls import make_wrong_call
from assets.synthesis.writing.failures import StepFailed, check_values
from assets.synthesis.writing.partners import list_required
from assets.synthesis.writing.profiles import make_rng
from assets.synthesis.writing.row_builder import Writing
from assets.synthesis.writing.tasks.single import (
    ask_call_of,
    ask_requests,
    format_order,
    shuffle_tools,
    take_draft,
)
from assets.synthesis.writing.tasks.slotfill import state_request
from warehouse.llm.client import Reply


async def write_no_tool(writing: Writing) -> None:
    """A request that none of the tools at hand can serve, and the answer without them."""
    offered = shuffle_tools(writing, writing.unit.shown)
    meta = {"profile": writing.profile}
    reply = await writing.ask("no_tool", Aside, offered, meta, order=format_order(writing))
    writing.set_writer(reply)
    text = writing.set_request("no_tool", reply.value.instruction)
    answer = writing.check_text("no_tool", reply.value.reply)
    writing.set_conversation([make_user_message(text), make_assistant_message(answer)], [], offered)


async def write_vague(writing: Writing) -> None:
    """A request that lacks a value and the question for it; for `clarification` also the answer
    and the call that then is right."""
    own = writing.unit.own
    reply = (await _ask_vague(writing)).value
    text = writing.set_request("missing", reply.instruction)
    question = make_assistant_message(writing.check_text("missing", reply.question))
    messages = [make_user_message(text), question]
    if writing.unit.task == MISSING:
        writing.set_conversation(messages, [], [own])
        return
    answer = writing.check_text("missing", reply.answer)
    values = check_values("missing", reply.values)
    whole = f"{text}\n{reply.question.strip()}\n{answer}"
    arguments = await ask_call_of(writing, own, whole, values)
    messages += [make_user_message(answer), make_call_message(1, [(own["tool"], arguments)])]
    writing.set_conversation(messages, [make_golden(own, arguments)], [own])


async def _ask_vague(writing: Writing) -> Reply[Vague]:
    unit = writing.unit
    names = list_required(writing.read_contract(unit.own))
    if not names:
        found = "the contract requires no value"
        raise StepFailed("missing", "nothing_missing", found, "plan it for another tool")
    rng = make_rng(unit.own, unit.task, writing.index, writing.policy, "parameter")
    meta = {
        "parameter": rng.choice(sorted(names)),
        "profile": writing.profile,
        "environment": writing.world,
    }
    reply = await writing.ask("missing", Vague, unit.own, meta, order=format_order(writing))
    writing.set_writer(reply)
    return reply


async def write_recovery(writing: Writing) -> None:
    """A request, a call that the contract refuses, the refusal, and the repaired call."""
    own, asked = writing.unit.own, writing.start_aside()
    try:
        drafts = await ask_requests(asked, [writing])
    except StepFailed:
        writing.prompts, writing.shown = asked.prompts, asked.shown
        raise
    text, values = await state_request(writing, take_draft(writing, asked, drafts, 1))
    right = await ask_call_of(writing, own, text, values)
    rng = make_rng(own, writing.unit.task, writing.index, writing.policy, "wrong")
    wrong = make_wrong_call(writing.read_contract(own), right, rng)
    if wrong is None:
        found = "the contract refuses no call like the right one"
        raise StepFailed("wrong_call", "no_wrong_call", found, "it stays without this task")
    made = {"wrong": wrong.arguments, "error": wrong.error}
    meta = {"instruction": text, "values": right, **made}
    repaired = await writing.ask("repair", Call, own, meta)
    arguments = check_values("repair", repaired.value.arguments)
    messages = [
        make_user_message(text),
        make_call_message(1, [(own["tool"], wrong.arguments)]),
        make_result_message(1, wrong.error),
        make_call_message(2, [(own["tool"], arguments)]),
    ]
    # The contract's own validator said it, but no server did.
    calls = [make_golden(own, arguments)]
    writing.set_conversation(messages, calls, [own], simulated=True)
