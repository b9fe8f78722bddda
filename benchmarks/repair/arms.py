"""What each arm makes of a draft: nothing, json-repair, the ladder with less or more at hand."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import json_repair

from assets.contracts.rename_history import ContractHistory
from benchmarks.repair.calls import AskedCall
from extensions.sidecar.flaws import FlawedDraft, GoodCall, make_drafts
from serving.repair.evidence import ConversationEvidence
from serving.repair.ladder import repair_drafts
from serving.repair.report import ABSTAINED, VALID, RepairReport
from serving.repair.tools import RepairToolset, read_toolset

OFFERED = 10  # tools of a request
LADDER = ("contract", "+ history", "+ conversation")


@dataclass(frozen=True)
class DraftCase:
    """One draft, what was meant, what is offered and what was said. stated: the conversation holds
    every required value."""

    draft: FlawedDraft
    good: GoodCall
    tools: RepairToolset
    conversation: list[dict[str, str]]
    stated: bool


@dataclass(frozen=True)
class Answer:
    """calls: (tool, arguments) of each call. intact: as the draft has it, byte for byte. rungs:
    those that changed something -> ms."""

    calls: list[tuple[str, Any]]
    abstained: bool = False
    intact: bool = True
    ms: float = 0.0
    rungs: dict[str, float] = field(default_factory=dict)


Arm = Callable[[DraftCase], Answer]


def list_asked(calls: Sequence[AskedCall], draw: Random) -> Iterator[DraftCase]:
    """Every draft of every call, ten tools offered: the right one, its server's, others'."""
    pool = [(call.good.server, call.good.contract) for call in calls]
    for call in calls:
        good, evidence = call.good, ConversationEvidence(call.conversation)
        own = [(good.server, item) for item in call.beside if item["name"] != good.name]
        more = [
            item for item in draw.sample(pool, min(len(pool), 30)) if item[1]["name"] != good.name
        ]
        listed: dict[str, Any] = {}
        for server, one in ((good.server, good.contract), *own[: OFFERED // 2], *more):
            listed.setdefault(one["name"], {**one, "server": server})
        tools = read_toolset(list(listed.values())[:OFFERED])
        stated = all(
            evidence.states(good.arguments[name], good.declared.get(name, {}), name)
            for name in good.root.get("required") or ()
            if name in good.arguments
        )
        for draft in make_drafts(good, draw):
            yield DraftCase(draft, good, tools, call.conversation, stated)


def build_arms(asked: Sequence[DraftCase]) -> dict[str, Arm]:
    """Name -> arm. History: of all drafts together, those of other servers too."""
    history = ContractHistory(tuple(item.draft.move for item in asked if item.draft.move))
    ladder = (_climb_with(None, False), _climb_with(history, False), _climb_with(history, True))
    return {
        "draft": _take_draft,
        "json-repair": _take_repaired_json,
        **dict(zip(LADDER, ladder, strict=True)),
    }


def _take_draft(asked: DraftCase) -> Answer:
    """The draft as it is, read as a strict client reads it."""
    given = asked.draft.arguments
    try:
        value = json.loads(given, parse_constant=_refuse_constant) if _is_text(given) else given
    except ValueError:
        value = None
    return Answer([(asked.draft.name, value)])


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _take_repaired_json(asked: DraftCase) -> Answer:
    """What json-repair makes of the arguments' text, and nothing else."""
    given, began = asked.draft.arguments, time.perf_counter()
    value = json_repair.loads(given) if _is_text(given) else given
    ms = (time.perf_counter() - began) * 1000
    return Answer([(asked.draft.name, value)], ms=ms)


def _climb_with(history: ContractHistory | None, shown: bool) -> Arm:
    def climb_ladder(asked: DraftCase) -> Answer:
        draft = {"name": asked.draft.name, "arguments": asked.draft.arguments}
        conversation, began = asked.conversation if shown else (), time.perf_counter()
        found = repair_drafts(draft, asked.tools, conversation=conversation, history=history)
        return _read_reports(asked, found, (time.perf_counter() - began) * 1000)

    return climb_ladder


def _read_reports(asked: DraftCase, found: Sequence[RepairReport], ms: float) -> Answer:
    given = asked.draft.arguments
    [first], rest = found[:1], found[1:]
    intact = first.outcome == VALID and not rest and (not _is_text(given) or first.text == given)
    left = any(item.outcome == ABSTAINED for item in found)
    calls = [] if left else [(item.name, json.loads(item.text)) for item in found]
    rungs = {step.rung: step.ms for item in found for step in item.rungs if step.what}
    return Answer(calls, left, intact, ms, rungs)
