"""Tasks with several calls or several turns.

`parallel` and `sequential` make several calls. The others have several turns: no tool fits, a value
is missing or asked for, a wrong call is repaired.

generator -> request and calls -> (reviser) -> [actor -> result -> (caller)] -> rules -> one row
"""

from collections.abc import Sequence

from assets.synthesis.role_schemas import (
    CallArguments,
    IncompleteRequest,
    MultiCallRequest,
    Step,
    ToollessRequest,
    ToolReply,
)
from assets.synthesis.tables import (
    CONTRACT,
    MISSING,
    PARALLEL,
    dump_text,
    make_assistant_message,
    make_call_message,
    make_golden,
    make_result_message,
    make_user_message,
)
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import find_worst_grade
from assets.synthesis.writing.profiles import make_rng
from assets.synthesis.writing.row_builder import RowBuilder, StepFailed, check_values
from assets.synthesis.writing.single_call import (
    AGAIN,
    ask_call_of,
    ask_requests,
    ask_revision,
    find_absent,
    find_unsaid,
    format_order,
    shuffle_tools,
    state_request,
    take_draft,
)
from assets.synthesis.writing.units import Row, chain_links, list_required, make_link
from assets.synthesis.wrong_calls import make_wrong_call
from warehouse.json_types import Json, JsonObject

MOST_CALLS = 3
_STEP = "several"


async def write_several(writing: RowBuilder) -> None:
    """The one row of a unit `parallel` or `sequential`."""
    unit = writing.unit
    rows = list(unit.rows)
    if unit.outline:
        await _write_explored(writing, rows, unit.outline["steps"])
        return
    if unit.task != PARALLEL and len(rows) == 2:  # the one that goes first comes first
        first, second = (make_link(writing.read_contract(row)) for row in rows)
        rows = rows if chain_links(first, second)[0] else rows[::-1]
    text, steps = await _write_request(writing, rows)
    text, steps = await _state_values(writing, rows, text, steps)
    if unit.task == PARALLEL:
        calls_made = [(rows[step.tool - 1]["tool"], step.arguments) for step in steps]
        messages = [make_user_message(text), make_call_message(1, calls_made)]
    else:
        messages, steps = await _call_in_sequence(writing, rows, text, steps)
    calls = [make_golden(rows[step.tool - 1], step.arguments, step.borrowed) for step in steps]
    writing.set_conversation(messages, calls, unit.rows, simulated=unit.task != PARALLEL)


async def _write_explored(
    writing: RowBuilder, rows: Sequence[Row], outline: Sequence[JsonObject]
) -> None:
    """Calls that were made when their server was explored, worded backwards: the calls are the
    label, and an answer that one gave is what a later one takes from."""
    steps = [
        Step(tool=step["tool"], arguments=step["arguments"], borrowed=[*step["borrowed"]])
        for step in outline
    ]
    shown = [{name: step[name] for name in ("tool", "arguments", "borrowed")} for step in outline]
    meta = {
        "shape": writing.unit.task,
        "profile": writing.profile,
        "environment": {**writing.world, "calls that worked here, in order": shown},
        "explored": shown,
    }
    reply = await writing.ask(_STEP, MultiCallRequest, rows, meta, order=format_order(writing))
    writing.set_writer(reply)
    text = writing.set_request(_STEP, reply.value.instruction)
    text, _ = await _state_values(writing, rows, text, list(steps))
    for step in steps:
        if names := _find_absent(writing, rows, text, step):
            raise StepFailed("revise", "not_stated", f"the text lacks {', '.join(names)}", AGAIN)
    calls_made = [(rows[step.tool - 1]["tool"], step.arguments) for step in steps]
    messages: list[dict[str, Json]] = [make_user_message(text)]
    if writing.unit.task == PARALLEL:
        messages.append(make_call_message(1, calls_made))
    else:
        for number, call in enumerate(calls_made, 1):
            messages.append(make_call_message(number, [call]))
            if number < len(steps):
                answer = writing.check_text("act", str(outline[number - 1]["answer"]), spoken=False)
                messages.append(make_result_message(number, answer))
    calls = [make_golden(rows[step.tool - 1], step.arguments, step.borrowed) for step in steps]
    writing.set_conversation(messages, calls, writing.unit.rows)


async def _write_request(writing: RowBuilder, rows: Sequence[Row]) -> tuple[str, list[Step]]:
    shape = writing.unit.task
    meta = {"shape": shape, "profile": writing.profile, "environment": writing.world}
    reply = await writing.ask(_STEP, MultiCallRequest, rows, meta, order=format_order(writing))
    writing.set_writer(reply)
    text = writing.set_request(_STEP, reply.value.instruction)
    steps = [step.model_copy(update={"arguments": check_values(_STEP, step.arguments)})
             for step in reply.value.calls]  # fmt: skip
    if flaw := _find_misshape(shape, steps, len(rows)):
        raise StepFailed(_STEP, *flaw, AGAIN)
    return text, steps


def _find_misshape(shape: str, steps: Sequence[Step], tools: int) -> tuple[str, str] | None:
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
        calls_made = [(step.tool, dump_text(step.arguments)) for step in steps]
        if len(set(calls_made)) < len(calls_made):
            return "wrong_calls", "the same call twice"
        return None
    if [step.tool for step in steps] != list(range(1, tools + 1)):
        return "wrong_calls", "the calls are not one of each tool, in the order shown"
    if steps[0].borrowed or not any(step.borrowed for step in steps[1:]):
        return "wrong_calls", "no later call takes a value out of an earlier result"
    return None


async def _state_values(
    writing: RowBuilder, rows: Sequence[Row], text: str, steps: list[Step]
) -> tuple[str, list[Step]]:
    """The request with every required value in its words but for those that results supply."""
    lacking = [(at, names) for at, step in enumerate(steps)
               if (names := _find_absent(writing, rows, text, step))]  # fmt: skip
    for at, names in lacking:
        step = steps[at]
        row = rows[step.tool - 1]
        text, values = await ask_revision(writing, row, text, step.arguments, names)
        steps[at] = step.model_copy(update={"arguments": values})
    for step in steps if lacking else ():
        if names := [n for n in _find_absent(writing, rows, text, step) if n in step.arguments]:
            raise StepFailed("revise", "not_stated", f"the text lacks {', '.join(names)}", AGAIN)
    return text, steps


def _find_absent(writing: RowBuilder, rows: Sequence[Row], text: str, step: Step) -> list[str]:
    contract = writing.read_contract(rows[step.tool - 1])
    return [
        name for name in find_absent(contract, text, step.arguments) if name not in step.borrowed
    ]


async def _call_in_sequence(
    writing: RowBuilder, rows: Sequence[Row], text: str, steps: Sequence[Step]
) -> tuple[list[dict[str, Json]], list[Step]]:
    """The conversation of a sequence: each call, and what an actor in the tool's place returns."""
    messages: list[dict[str, Json]] = [make_user_message(text)]
    results: list[str] = []
    steps_made: list[Step] = []
    for number, planned in enumerate(steps, 1):
        row = rows[planned.tool - 1]
        step = (
            await _feed_call(writing, row, text, planned, results) if planned.borrowed else planned
        )
        steps_made.append(step)
        messages.append(make_call_message(number, [(row["tool"], step.arguments)]))
        if number < len(steps):
            # The actor is asked to return what later calls are meant to take out of it.
            holds = {name: later.arguments[name] for later in steps[number:]
                     for name in later.borrowed if name in later.arguments}  # fmt: skip
            meta = {"arguments": step.arguments}
            reply = await writing.ask("act", ToolReply, row, meta, holds=dump_text(holds))
            results.append(writing.check_text("act", reply.value.content, spoken=False))
            messages.append(make_result_message(number, results[-1]))
    return messages, steps_made


async def _feed_call(
    writing: RowBuilder, row: Row, text: str, step: Step, results: Sequence[str]
) -> Step:
    """The call with what it borrows out of the results: as planned where the results hold it, else
    as the caller reads them."""
    if not _find_unheld(step.arguments, step.borrowed, results):
        return step
    context = "\n".join([text, *(f"What an earlier step returned: {result}" for result in results)])
    arguments = await ask_call_of(writing, row, context, step.arguments)
    if names := _find_unheld(arguments, step.borrowed, results):
        problem = f"no earlier result holds {', '.join(names)}"
        raise StepFailed("call", "not_borrowed", problem, AGAIN)
    return step.model_copy(update={"arguments": arguments})


def _find_unheld(
    arguments: JsonObject, borrowed: Sequence[str], results: Sequence[str]
) -> list[str]:
    results_text = RequestText("\n".join(results))
    return [
        name
        for name in borrowed
        if name not in arguments
        or find_worst_grade(name, arguments[name], results_text) != "stated"
    ]


async def write_no_tool(writing: RowBuilder) -> None:
    """A request that none of the tools at hand can serve, and the answer without them."""
    unit = writing.unit
    offered = shuffle_tools(writing, unit.shown)
    elsewhere = [
        {"contract": writing.read_contract(row), "arguments": arguments}
        for row, arguments in zip(unit.elsewhere, unit.explored, strict=True)
    ]
    meta = {"profile": writing.profile, "elsewhere": elsewhere}
    reply = await writing.ask(
        *("no_tool", ToollessRequest, offered, meta, unit.elsewhere), order=format_order(writing)
    )
    writing.set_writer(reply)
    text = writing.set_request("no_tool", reply.value.instruction)
    if not any(
        item["arguments"] and not find_unsaid(item["contract"], text, item["arguments"])
        for item in elsewhere
    ):
        writing.columns["basis"] = CONTRACT
    answer = writing.check_text("no_tool", reply.value.reply)
    writing.set_conversation([make_user_message(text), make_assistant_message(answer)], [], offered)


async def write_vague(writing: RowBuilder) -> None:
    """A request that lacks a value and the question for it; for `clarification` also the answer
    and the call that then is right."""
    row, task = writing.unit.own, writing.unit.task
    names = list_required(writing.read_contract(row))
    if not names:
        problem = "the contract requires no value"
        raise StepFailed("missing", "nothing_missing", problem, "plan it for another tool")
    rng = make_rng(row, task, writing.index, writing.policy, "parameter")
    meta = {"parameter": rng.choice(sorted(names)), "profile": writing.profile,
            "environment": writing.world}  # fmt: skip
    if outline := writing.unit.outline:
        call = writing.unit.explored[0]
        worked = {"a call that worked here": call, "either would do": outline["options"]}
        meta |= {**outline, "environment": {**writing.world, **worked}, "explored": call}
    answered = await writing.ask(
        "missing", IncompleteRequest, row, meta, order=format_order(writing)
    )
    writing.set_writer(answered)
    reply = answered.value
    text = writing.set_request("missing", reply.instruction)
    question = make_assistant_message(writing.check_text("missing", reply.question))
    messages = [make_user_message(text), question]
    if task == MISSING:
        writing.set_conversation(messages, [], [row])
        return
    answer = writing.check_text("missing", reply.answer)
    values = check_values("missing", reply.values)
    whole = f"{text}\n{reply.question.strip()}\n{answer}"
    if outline:  # the call is the label
        arguments = dict(writing.unit.explored[0])
    else:
        arguments = await ask_call_of(writing, row, whole, values)
    messages += [make_user_message(answer), make_call_message(1, [(row["tool"], arguments)])]
    writing.set_conversation(messages, [make_golden(row, arguments)], [row])


async def write_recovery(writing: RowBuilder) -> None:
    """A request, a call that the contract refuses, the refusal, and the repaired call."""
    row, plan = writing.unit.own, writing.columns["plan_digest"]
    shared = RowBuilder(writing.unit, plan, 0, writing.llm, writing.policy)
    try:
        drafts = await ask_requests(shared, [writing])
    except StepFailed:
        writing.prompts, writing.shown = shared.prompts, shared.shown
        raise
    draft = take_draft(writing, shared, drafts, 1)
    if outline := writing.unit.outline:
        right = dict(writing.unit.explored[0])
        text, _ = await state_request(writing, draft.model_copy(update={"values": right}))
        error = writing.check_text("repair", outline["error"], spoken=False)
        _set_recovery(writing, text, outline["wrong"], error, right)
        return
    text, values = await state_request(writing, draft)
    right = await ask_call_of(writing, row, text, values)
    rng = make_rng(row, writing.unit.task, writing.index, writing.policy, "wrong")
    wrong = make_wrong_call(writing.read_contract(row), right, rng)
    if wrong is None:
        problem = "the contract refuses no call like the right one"
        raise StepFailed("wrong_call", "no_wrong_call", problem, "it stays without this task")
    wrong_turn = {"wrong": wrong.arguments, "error": wrong.error}
    meta = {"instruction": text, "values": right, **wrong_turn}
    repaired = await writing.ask("repair", CallArguments, row, meta)
    arguments = check_values("repair", repaired.value.arguments)
    # The contract's own validator said it, but no server did.
    _set_recovery(writing, text, wrong.arguments, wrong.error, arguments, simulated=True)


def _set_recovery(
    writing: RowBuilder,
    text: str,
    wrong: JsonObject,
    error: str,
    right: dict[str, Json],
    *,
    simulated: bool = False,
) -> None:
    row = writing.unit.own
    messages = [
        make_user_message(text),
        make_call_message(1, [(row["tool"], wrong)]),
        make_result_message(1, error),
        make_call_message(2, [(row["tool"], right)]),
    ]
    writing.set_conversation(messages, [make_golden(row, right)], [row], simulated=simulated)
