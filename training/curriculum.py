"""The curriculum: what the next run explores and writes more of, by what the models got wrong.

An evaluation is given out once, in `tools` grants of one task each. A part of them goes round all
tools in turn, so that none starves. The others go to the tools that the models in service fail
most; a tool that was not measured counts by the kinds of its arguments. Tools that are only tested
on get turns alone: their errors count by argument kind and task, so that no test is made of what it
measured. A grant is never taken back, so that the same errors ask for nothing again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import polars as pl

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


@dataclass
class ErrorTally:
    """Items and errors under a name: a tool, a task, (tool, task), or the kind of an argument."""

    items: Counter[Any] = field(default_factory=Counter)
    errors: Counter[Any] = field(default_factory=Counter)

    def add(
        self,
        tool: Tool | None,
        task: str,
        wrong: bool,
        kinds: Iterable[str] = (),
        faulty: Iterable[str] = (),
    ) -> None:
        """Counts a request. tool: the right one, None where none is right. kinds: of its arguments;
        faulty: those that were wrong."""
        names: list[Any] = [task, *([tool, (tool, task)] if tool else [])]
        self.items.update([*names, *((KINDS, kind) for kind in kinds)])
        self.errors.update([*(names if wrong else ()), *((KINDS, kind) for kind in faulty)])

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
        """The open task that the tool, if models learn from it, or else all tools fail most."""

        def rank(task: str) -> tuple[float, float, int]:
            names = (task, SINGLE) if task in _OF_SINGLE else (task,)
            own = max(tally.find_least((self.key, name)) for name in names) if self.learnt else 0.0
            return -own, -max(map(tally.find_least, names)), _GRANTED.index(task)

        # Requests of single calls are there already: a grant of them writes them again.
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
        if own := tally.find_least(tool.key):
            return -own, 0.0
        return 0.0, -tally.find_least((KINDS, tool.find_worst_kind(tally)))

    failing = [tool for tool in waiting[turns:] if tool.learnt and any(rank(tool))]
    failing = sorted(failing, key=rank)[: policy.tools - turns]
    others = [tool for tool in waiting if tool not in failing][: policy.tools - len(failing)]
    whys = [ERRORS if tally.errors[tool.key] else KINDS for tool in failing] + [TURN] * len(others)
    chosen = zip([*failing, *others], whys, strict=True)
    return [(tool, tool.choose_task(tally), why) for tool, why in chosen]


def make_curriculum(
    warehouse: Warehouse, policy: CurriculumPolicy, split: SetPolicy
) -> tuple[list[Record], ErrorTally]:
    """The rows of CURRICULUM, and the errors that tonight's grants follow. What an evaluation gave
    out already stays as it is; before the first one nothing is granted."""
    tables, slots = warehouse.tables, read_tool_slots(warehouse)
    rows, tally = tables.read(CURRICULUM).to_dicts(), read_errors(warehouse, slots)
    heads = [tables.head(spec.name) for spec in (CALLER_EVALUATION, RETRIEVER_EVALUATION)]
    evaluation = digest([head.digest if head else None for head in heads])[:40]
    if not tally.items or any(row["evaluation"] == evaluation for row in rows):
        return rows, tally
    before = Counter((row["server_id"], row["tool"]) for row in rows)
    tools = _list_tools(warehouse, slots, rows, split)
    for tool, task, why in choose_grants(tools, tally, before, policy):
        (server, name), kind = tool.key, tool.find_worst_kind(tally)
        row = {"server_id": server, "tool": name, "task": task, "reason": why, "kind": kind}
        row |= {"n": tally.items[tool.key], "errors": tally.errors[tool.key]}
        rows.append({**row, "evaluation": evaluation})
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
    names = ("server_id", "tool", "task")
    written = warehouse.tables.read(PAIRS).select(names).filter(pl.col("task") != SINGLE)
    closed = {*written.iter_rows(), *(tuple(row[name] for name in names) for row in granted)}
    tools = []
    for key, slots in contracts.items():
        asks = {MISSING, CLARIFY} if not any(needed for _, needed in slots.values()) else set()
        unfit = asks if slots else {*_GRANTED} - {NO_TOOL, LOOKALIKE}
        tasks = tuple(t for t in _GRANTED if t not in unfit and (*key, t) not in closed)
        learnt = choose_tool_place(*key, split) == TRAIN
        tools.append(CurriculumTool(key, frozenset(k for k, _ in slots.values()), tasks, learnt))
    return tools


def read_errors(warehouse: Warehouse, slots: Slots) -> ErrorTally:
    """What the models in service got wrong when they were last measured, as it was asked."""
    tally, tables, home = ErrorTally(), warehouse.tables, warehouse.home
    caller, retriever = (find_model_in_service(home, role).model for role in (CALLER, RETRIEVER))
    plain = (pl.col("perturbation") == UNPERTURBED) & (pl.col("phantom") == "") & ~pl.col("failed")
    asked = tables.read(CALLER_EVALUATION).filter((pl.col("model") == caller) & plain)
    for row in asked.iter_rows(named=True):
        key, right = (row["server_id"], row["tool"]), row["ast_ok"]
        kinds = {name: kind for name, (kind, _) in slots.get(key, {}).items()}
        faulty = {kinds[name] for name in _find_wrong(row) if name in kinds and not right}
        task = _TASK_OF.get(row["task"], str(row["task"]))
        tally.add(key if row["tool"] else None, task, not right, {*kinds.values()}, faulty)
    ranked = tables.read(RETRIEVER_EVALUATION).filter(pl.col("model") == retriever)
    for server, tool, rank in ranked.select("server_id", "tool", "rank").iter_rows():
        tally.add((server, tool), LOOKALIKE, rank > SHOWN)
    return tally


def _find_wrong(row: Row) -> set[str]:
    """The arguments of calls to the right tool that are lacking, too many or of another value."""
    calls = [
        [call["arguments"] for call in json.loads(row[name] or "[]") if call["name"] == row["tool"]]
        for name in ("expected", "called")
    ]
    return {
        name
        for right, actual in zip(*calls, strict=False)
        if isinstance(actual, dict)
        for name in {*right, *actual}
        if right.get(name) != actual.get(name)
    }
