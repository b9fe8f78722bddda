"""The repair ladder: a draft call becomes a valid one, or is left with a precise reason.

parse -> tool -> validate -> coerce -> history -> fill -> revise -> verify

A valid call comes back as it was. Every rung's result is validated; a rung that does not help
changes nothing. No required value is made up: what neither draft, conversation nor contract holds
is asked for. The same input gives the same answer, within bounded steps, whatever it holds.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.contracts.canonical import find_tool_problem
from assets.contracts.rename_history import ContractHistory, read_history
from assets.contracts.repair.json_text import parse_arguments
from assets.contracts.repair.problems import describe_problems
from serving.index.folder import load_index, read_served_version
from serving.repair.drafts import DraftCall, read_drafts
from serving.repair.evidence import ConversationEvidence
from serving.repair.rungs import (
    ABSTAINED,
    FAILED,
    REPAIRED,
    RUNGS,
    VALID,
    AbstainReason,
    RepairReport,
    RepairState,
    RungReport,
    RungStep,
    ask_model,
    fill_missing,
    find_tool,
    fit_values,
    look_up_history,
    parse_draft,
    validate_draft,
    verify_result,
    write_arguments,
)
from serving.repair.tools import RepairToolset, ReviseCall, read_toolset
from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_text

Messages = Sequence[Mapping[str, Any]] | str
_CLIMBS: tuple[Callable[[RepairState], RungStep], ...] = (
    parse_draft,
    find_tool,
    validate_draft,
    fit_values,
    look_up_history,
    fill_missing,
    ask_model,
    verify_result,
)
_MOST = 64 * 1024 * 1024  # bytes of a file
_TOOLS = (
    'a list of OpenAI, Anthropic or MCP tools, {"tools": [...]}, a tools/list answer, or one tool'
)
_MESSAGES = 'a list of {"role", "content"}, or {"messages": [...]}'


def repair_draft(
    draft: Any,
    tools: RepairToolset | Iterable[Any],
    *,
    conversation: Messages = (),
    history: ContractHistory | None = None,
    revise: ReviseCall | None = None,
) -> RepairReport:
    """Climbs the ladder with one draft call. draft: for `read_drafts`. tools: of any vendor, or
    their `read_toolset`. conversation: messages {role, content}, or words. Never raises."""
    drafts = read_drafts(draft)
    if len(drafts) != 1:
        count = len(drafts)
        kind = "several_calls" if count else "no_call"
        question = (
            f"{count} calls in one draft: repair each by itself"
            if count
            else "no call can be read out of the draft; expected {name, arguments}, a vendor's tool"
            " call, or text that holds one"
        )
        text = draft if isinstance(draft, str) else write_arguments(draft)
        rungs = [RungReport("parse", FAILED, why=question)]
        return RepairReport(ABSTAINED, "", None, text, rungs, reason=AbstainReason(kind, question))
    spoken = conversation
    messages = [{"role": "user", "content": spoken}] if isinstance(spoken, str) else spoken
    state = RepairState(
        drafts[0], read_toolset(tools), messages, history, revise, ConversationEvidence(messages)
    )
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
    tools: RepairToolset | Iterable[Any],
    *,
    conversation: Messages = (),
    history: ContractHistory | None = None,
    revise: ReviseCall | None = None,
) -> list[RepairReport]:
    """A report for each call of a draft, one that abstains for none. Never raises."""
    toolset, reports = read_toolset(tools), []
    options: dict[str, Any] = {"conversation": conversation, "history": history, "revise": revise}
    for item in read_drafts(draft):
        values = parse_arguments(item.arguments).values if isinstance(item.arguments, str) else []
        drafts = (
            [DraftCall(item.name, value, item.id) for value in values]
            if len(values) > 1
            else [item]
        )
        reports += [repair_draft(part, toolset, **options) for part in drafts]
    return reports or [repair_draft(draft, toolset, **options)]


def _write_report(state: RepairState, outcome: str) -> RepairReport:
    draft, candidate, problems = state.draft, state.candidate, list[dict[str, Any]]()
    name, arguments, drafted = draft.name, state.arguments, draft.arguments
    if outcome == ABSTAINED:
        arguments = drafted
        if candidate is not None and state.flaws:
            problems = describe_problems(candidate.contract, state.arguments, state.flaws)
    elif candidate is not None:
        name = candidate.name
    as_given = outcome != REPAIRED and isinstance(drafted, str)
    return RepairReport(
        outcome,
        name,
        arguments,
        drafted if as_given else write_arguments(arguments),
        state.rungs,
        candidate.server if candidate else None,
        draft.id,
        state.reason,
        problems,
    )


def repair_files(
    call: Path,
    tools: Path,
    conversation: Path | None = None,
    history: Path | None = None,
    revise: ReviseCall | None = None,
) -> list[RepairReport]:
    """A report of each call that the file holds. Raises UnusableInput."""
    return repair_drafts(
        read_draft_file(call),
        read_tool_file(tools),
        conversation=read_conversation_file(conversation) if conversation else (),
        history=read_history_place(history) if history else None,
        revise=revise,
    )


def read_draft_file(path: Path) -> Any:
    """A call as JSON in any vendor's shape, or the text that a model wrote."""
    text = read_text(path, _MOST)
    if not text.strip():
        raise UnusableInput(f"{path}: empty; give a call as JSON, or a model's text that holds one")
    try:
        return parse_json(text, path)
    except UnusableInput:
        return text


def read_tool_file(path: Path) -> RepairToolset:
    value = parse_json(read_text(path, _MOST), path)
    if isinstance(value, dict) and isinstance(value.get("result"), dict):
        value = value["result"]
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    rows = [value] if isinstance(value, dict) else value
    if not isinstance(rows, list) or not rows:
        raise UnusableInput(f"{path}: no tool in it; expected {_TOOLS}")
    for at, tool in enumerate(rows):
        if (problem := find_tool_problem(tool)) is not None:
            raise UnusableInput(f"{path}, entry {at}: {problem}; expected {_TOOLS}")
    return read_toolset(rows)


def read_conversation_file(path: Path) -> list[Mapping[str, Any]]:
    value = parse_json(read_text(path, _MOST), path)
    if isinstance(value, dict):
        value = value.get("messages", value.get("input"))
    if not isinstance(value, list):
        raise UnusableInput(f"{path}: no messages in it; expected {_MESSAGES}")
    for at, message in enumerate(value):
        if not isinstance(message, dict):
            kind = type(message).__name__
            raise UnusableInput(f"{path}, message {at}: {kind}; expected {_MESSAGES}")
    return value


def read_history_place(place: Path) -> ContractHistory:
    """The history of a file, or of the index that a folder serves: an exported release, a home."""
    if not place.is_dir():
        return read_history(place)
    return load_index(place, read_served_version(place)).history
