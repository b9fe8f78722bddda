"""The curriculum: what the next run explores and writes more of, by what the models got wrong.

An evaluation is given out once, in `tools` grants of one task each. A part of them goes round all
tools in turn, so that none starves. The others go to the tools that the models in service fail
most; a tool that was not measured counts by the kinds of its arguments. Tools that are only tested
on get turns alone: their errors count by argument kind and task, so that no test is made of what it
measured. A grant is never taken back, so that the same errors ask for nothing again.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from assets.contracts.quarantined_tools import read_clear
from assets.synthesis.contract_reading import read_slots
from assets.synthesis.offline.invented_values import find_sort
from assets.synthesis.tables import (
    CLARIFY,
    CURRICULUM,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PAIRS,
    PARALLEL,
    RECOVERY,
    SINGLE,
    read_contract,
)
from training.drift.signals import SHOWN
from training.evaluation.caller_table import ASK_BACK, CALLER_EVALUATION, NOT_OFFERED, UNPERTURBED
from training.evaluation.retriever import RETRIEVER_EVALUATION
from training.releases.in_service import find_model_in_service
from training.role import CALLER, RETRIEVER
from training.sets.split import TRAIN, SetPolicy, choose_tool_place
from training.settings import CurriculumPolicy
from warehouse.item_failure import try_item
from warehouse.json_types import Record, Row
from warehouse.statistics import wilson_interval
from warehouse.storage.digest import digest, sha256
from warehouse.store import Warehouse

ERRORS, KINDS, TURN = "errors", "kinds", "turn"  # why a tool was granted a task
_TASK_OF = {NOT_OFFERED: NO_TOOL, ASK_BACK: MISSING}
# Tasks that a grant may name, by what they ask of a tool. Sequences follow from explorations.
_GRANTED = (LOOKALIKE, RECOVERY, PARALLEL, MISSING, CLARIFY, NO_TOOL, SINGLE)
_OF_SINGLE = (LOOKALIKE, RECOVERY)  # one call too: what is wrong with a single call is taught there

Tool = tuple[str, str]  # server, tool


@dataclass(frozen=True)
class ScoredItem:
    """A request that a model in service answered. tool: the right one, None where none is right.
    kinds: of the tool's arguments; faulty: those that were wrong."""

    tool: Tool | None
    task: str
    wrong: bool
    kinds: frozenset[str] = frozenset()
    faulty: frozenset[str] = frozenset()


@dataclass
class ErrorTally:
    """Items and errors under a name: a tool, a task, (tool, task), or the kind of an argument."""

    items: Counter[Any] = field(default_factory=Counter)
    errors: Counter[Any] = field(default_factory=Counter)

    def add(self, item: ScoredItem) -> None:
        names: list[Any] = [item.task, *([item.tool, (item.tool, item.task)] if item.tool else [])]
        self.items.update([*names, *((KINDS, kind) for kind in item.kinds)])
        self.errors.update(names if item.wrong else [])
        self.errors.update((KINDS, kind) for kind in item.faulty)

    def find_least(self, name: Any) -> float:
        """The lower bound of a share of errors: few items say little."""
        return wilson_interval(self.errors[name], self.items[name])[0] if self.items[name] else 0.0


@dataclass(frozen=True)
class CurriculumTool:
    """A tool that may be granted a task. tasks: those that are open. learnt: whether models may
    learn from it."""

    key: Tool
    kinds: frozenset[str] = frozenset()
    tasks: tuple[str, ...] = _GRANTED
    learnt: bool = True

    def find_worst_kind(self, tally: ErrorTally) -> str | None:
        failed = [kind for kind in sorted(self.kinds) if tally.errors[KINDS, kind]]
        return max(failed, key=lambda kind: tally.find_least((KINDS, kind)), default=None)

    def choose_task(self, tally: ErrorTally) -> str:
        """The open task that the tool fails most, then that all fail most."""

        def rank(task: str) -> tuple[float, float, int]:
            names = (task, SINGLE) if task in _OF_SINGLE else (task,)
            own, every = (
                max(tally.find_least(key) for key in keys)
                for keys in ([(self.key, name) for name in names], names)
            )
            return -own, -every, _GRANTED.index(task)

        # The requests of a single call are there already, and are written again.
        return min((task for task in self.tasks if task != SINGLE), key=rank, default=SINGLE)


def choose_grants(
    tools: Iterable[CurriculumTool],
    tally: ErrorTally,
    before: Mapping[Tool, int],
    policy: CurriculumPolicy,
) -> list[tuple[CurriculumTool, str, str]]:
    """(tool, task, why) of at most `policy.tools` tools. before: tool -> grants so far.

    Whatever the errors, every tool is granted a task within tools / turns evaluations. With more
    errors a tool comes no later: neither the order of turns nor that of others depends on them.
    """
    waiting = [tool for tool in tools if tool.tasks and before.get(tool.key, 0) < policy.most]
    waiting.sort(key=lambda tool: (before.get(tool.key, 0), sha256(" ".join(tool.key).encode())))
    turns = ceil(policy.tools * policy.turns)

    def rank(tool: CurriculumTool) -> tuple[float, float]:
        kind = tool.find_worst_kind(tally)
        own = tally.find_least(tool.key)
        return (-own, 0.0) if own or kind is None else (0.0, -tally.find_least((KINDS, kind)))

    failing = sorted(
        (tool for tool in waiting[turns:] if tool.learnt and any(rank(tool))), key=rank
    )
    failing = failing[: policy.tools - turns]
    keys = {tool.key for tool in failing}
    others = [tool for tool in waiting if tool.key not in keys]
    chosen = [(tool, ERRORS if tally.errors[tool.key] else KINDS) for tool in failing]
    chosen += [(tool, TURN) for tool in others[: policy.tools - len(failing)]]
    return [(tool, tool.choose_task(tally), why) for tool, why in chosen]


def make_curriculum(
    warehouse: Warehouse, policy: CurriculumPolicy, split: SetPolicy
) -> tuple[list[Record], ErrorTally]:
    """The rows of CURRICULUM, and the errors that tonight's grants follow. What an evaluation gave
    out already stays as it is; before the first one nothing is granted."""
    tables, tally = warehouse.tables, ErrorTally()
    rows = tables.read(CURRICULUM).to_dicts()
    contracts = read_tool_slots(warehouse)
    for item in read_items(warehouse, contracts):
        tally.add(item)
    heads = [tables.head(spec.name) for spec in (CALLER_EVALUATION, RETRIEVER_EVALUATION)]
    evaluation = digest([head.digest if head else None for head in heads])[:40]
    if not tally.items or any(row["evaluation"] == evaluation for row in rows):
        return rows, tally
    before = Counter((row["server_id"], row["tool"]) for row in rows)
    tools = _list_tools(warehouse, contracts, rows, split)
    for tool, task, why in choose_grants(tools, tally, before, policy):
        counts = {"n": tally.items[tool.key], "errors": tally.errors[tool.key]}
        names = {"server_id": tool.key[0], "tool": tool.key[1], "task": task, "reason": why}
        kind = tool.find_worst_kind(tally)
        rows.append({**names, **counts, "kind": kind, "evaluation": evaluation})
    return rows, tally


Slots = Mapping[Tool, Mapping[str, tuple[str, bool]]]  # tool -> parameter -> (kind, required)


def read_tool_slots(warehouse: Warehouse) -> Slots:
    slots: dict[Tool, dict[str, tuple[str, bool]]] = {}
    for row in read_clear(warehouse):
        listed = try_item(lambda row=row: read_slots(read_contract(row)), lambda _: [])
        slots[row["server_id"], row["tool"]] = {
            slot.name: (find_sort(slot) if slot.type == "string" else slot.type, slot.required)
            for slot in listed
        }
    return slots


def _list_tools(
    warehouse: Warehouse, contracts: Slots, granted: Sequence[Row], split: SetPolicy
) -> list[CurriculumTool]:
    written = warehouse.tables.read(PAIRS).select("server_id", "tool", "task").unique().rows()
    closed: dict[Tool, set[str]] = defaultdict(set)
    for server, name, task in written:
        closed[server, name] |= {task} - {SINGLE}  # whose requests a grant writes again
    for row in granted:
        closed[row["server_id"], row["tool"]].add(row["task"])
    tools = []
    for key, slots in contracts.items():
        asks = {MISSING, CLARIFY} if not any(needed for _, needed in slots.values()) else set()
        unfit = asks if slots else {*_GRANTED} - {NO_TOOL, LOOKALIKE}
        tasks = tuple(task for task in _GRANTED if task not in closed[key] | unfit)
        learnt = choose_tool_place(*key, split) == TRAIN
        tools.append(CurriculumTool(key, frozenset(k for k, _ in slots.values()), tasks, learnt))
    return tools


def read_items(warehouse: Warehouse, contracts: Slots) -> list[ScoredItem]:
    """What the models in service answered when they were last measured, as it was asked."""
    home, tables = warehouse.home, warehouse.tables
    caller, retriever = (find_model_in_service(home, role).model for role in (CALLER, RETRIEVER))
    items = []
    for row in tables.read(CALLER_EVALUATION).to_dicts():
        plain = row["perturbation"] == UNPERTURBED and not row["phantom"]
        if row["model"] == caller and plain and not row["failed"]:
            tool = (row["server_id"], row["tool"]) if row["tool"] else None
            slots = contracts.get(tool, {}) if tool else {}
            kinds = frozenset(kind for kind, _ in slots.values())
            faulty = frozenset(slots[name][0] for name in _find_wrong(row) if name in slots)
            task = _TASK_OF.get(row["task"], str(row["task"]))
            wrong = not row["ast_ok"]
            items.append(ScoredItem(tool, task, wrong, kinds, faulty if wrong else frozenset()))
    for row in tables.read(RETRIEVER_EVALUATION).to_dicts():
        if row["model"] == retriever:
            key = row["server_id"], row["tool"]
            items.append(ScoredItem(key, LOOKALIKE, row["rank"] > SHOWN))
    return items


def _find_wrong(row: Row) -> set[str]:
    """The arguments of calls to the right tool that are lacking, too many or of another value."""
    called = [call for call in json.loads(row["called"] or "[]") if call["name"] == row["tool"]]
    wrong: set[str] = set()
    for expected in json.loads(row["expected"] or "[]"):
        if expected["name"] == row["tool"] and called:
            right, actual = expected["arguments"], called.pop(0)["arguments"]
            names = {*right, *(actual if isinstance(actual, dict) else {})}
            wrong |= {name for name in names if _get(right, name) != _get(actual, name)}
    return wrong


def _get(arguments: Any, name: str) -> Any:
    return arguments.get(name) if isinstance(arguments, dict) else None
