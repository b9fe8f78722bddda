"""The repair ladder: a draft call becomes a valid one, or is left with a precise reason.

parse -> tool -> validate -> coerce -> history -> fill -> revise -> verify

A valid call comes back as it was. Every rung's result is validated; a rung that does not help
changes nothing. No required value is made up: what neither draft, conversation nor contract holds
is asked for. The same input gives the same answer, within bounded steps, whatever it holds.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assets.contracts.history.moves import ContractHistory
from assets.contracts.repair.problems import describe_problems
from serving.repair.contract_rungs import (
    find_tool,
    fit_values,
    parse_draft,
    validate_draft,
    verify_result,
)
from serving.repair.drafts import Draft, read_drafts
from serving.repair.evidence import Evidence
from serving.repair.evidence_rungs import ask_model, fill_missing, look_up_history
from serving.repair.parse import parse_arguments
from serving.repair.report import (
    ABSTAINED,
    FAILED,
    REPAIRED,
    RUNGS,
    VALID,
    Reason,
    RepairReport,
    RungReport,
    write_arguments,
)
from serving.repair.revision import Revise
from serving.repair.state import State, Step
from serving.repair.tools import Toolset, read_toolset

Messages = Sequence[Mapping[str, Any]] | str
_CLIMBS: tuple[Callable[[State], Step], ...] = (
    parse_draft,
    find_tool,
    validate_draft,
    fit_values,
    look_up_history,
    fill_missing,
    ask_model,
    verify_result,
)


def repair_draft(
    draft: Any,
    tools: Toolset | Iterable[Any],
    *,
    conversation: Messages = (),
    history: ContractHistory | None = None,
    revise: Revise | None = None,
) -> RepairReport:
    """Climbs the ladder with one draft call.

    draft: any shape that `read_drafts` takes, holding one call. tools: of the request, in any
    vendor's shape; `read_toolset` of them serves many drafts. conversation: messages {role,
    content}, or what the user said. Never raises.
    """
    drafts = read_drafts(draft)
    if len(drafts) != 1:
        return _refuse(draft, len(drafts))
    given = conversation
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    state = State(drafts[0], read_toolset(tools), messages, history, revise, Evidence(messages))
    for name, climb in zip(RUNGS, _CLIMBS, strict=True):
        began = time.perf_counter()
        step = climb(state)
        ms = round((time.perf_counter() - began) * 1000, 3)
        state.rungs.append(RungReport(name, step.outcome, step.what, step.why, ms))
        if state.reason is not None:
            return _write_report(state, ABSTAINED)
        if name == "validate" and state.flaws == [] and not state.is_changed:
            return _write_report(state, VALID)
    return _write_report(state, REPAIRED if state.is_changed else VALID)


def repair_drafts(
    draft: Any,
    tools: Toolset | Iterable[Any],
    *,
    conversation: Messages = (),
    history: ContractHistory | None = None,
    revise: Revise | None = None,
) -> list[RepairReport]:
    """Each call of a draft by itself, two that were written into one included; one abstained report
    where it holds none. Never raises."""
    toolset, reports = read_toolset(tools), []
    given: dict[str, Any] = {"conversation": conversation, "history": history, "revise": revise}
    for one in read_drafts(draft):
        values = parse_arguments(one.arguments).values if isinstance(one.arguments, str) else []
        parts = [Draft(one.name, value) for value in values] if len(values) > 1 else [one]
        reports += [repair_draft(part, toolset, **given) for part in parts]
    return reports or [repair_draft(draft, toolset, **given)]


def _refuse(draft: Any, count: int) -> RepairReport:
    kind = "several_calls" if count else "no_call"
    question = (
        f"{count} calls in one draft: repair each by itself"
        if count
        else "no call can be read out of the draft; expected {name, arguments}, a vendor's tool"
        " call, or text that holds one"
    )
    text = draft if isinstance(draft, str) else write_arguments(draft)
    rungs = [RungReport("parse", FAILED, why=question)]
    return RepairReport(ABSTAINED, "", None, text, rungs, reason=Reason(kind, question))


def _write_report(state: State, outcome: str) -> RepairReport:
    draft, candidate, problems = state.draft, state.candidate, list[dict[str, Any]]()
    name, arguments, given = draft.name, state.arguments, draft.arguments
    if outcome == ABSTAINED:
        arguments = given
        if candidate is not None and state.flaws:
            problems = describe_problems(candidate.contract, state.arguments, state.flaws)
    elif candidate is not None:
        name = candidate.name
    as_given = outcome != REPAIRED and isinstance(given, str)
    return RepairReport(
        outcome,
        name,
        arguments,
        given if as_given else write_arguments(arguments),
        state.rungs,
        candidate.server if candidate else None,
        draft.id,
        state.reason,
        problems,
    )
