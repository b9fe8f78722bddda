"""Pairs from worlds: tasks whose end state can be checked, each a request and the call for it.

No model takes part in writing them. Rules and judge read them like any other pair.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import (
    SINGLE,
    TaskSource,
    WorldTask,
    WorldUnavailable,
    dump_text,
    make_call_message,
    make_golden,
    make_user_message,
)
from assets.synthesis.writing.profiles import KINDS
from assets.synthesis.writing.row_builder import RowBuilder, StepFailed, check_values
from assets.synthesis.writing.units import WritingUnit
from warehouse.item_failure import describe_failure
from warehouse.json_types import Json
from warehouse.llm.client import LLM, OFFLINE

STEP = "world"


def add_worlds(
    units: Sequence[WritingUnit], source: TaskSource | None, policy: SynthesisPolicy
) -> list[WritingUnit]:
    """The units; one whose tool has tasks in a world knows what decides them."""
    if source is None or not policy.world_pairs:
        return list(units)
    digests = {
        name: source.digest_tasks(name, tools) for name, tools in _group_tools(units).items()
    }

    def add_world(unit: WritingUnit) -> WritingUnit:
        decides = digests.get(unit.own["server_id"], {}).get(unit.own["tool"])
        if unit.task != SINGLE or unit.problem or decides is None:
            return unit
        return replace(unit, world=f"{policy.world_pairs} {decides}")

    return [add_world(unit) for unit in units]


def write_world_pairs(
    units: Sequence[WritingUnit],
    due: Mapping[str, str],
    source: TaskSource | None,
    llm: LLM,
    policy: SynthesisPolicy,
) -> list[dict[str, Json]]:
    """The rows of PAIRS out of worlds, of the units that are due (unit -> digest of its plan): at
    most `world_pairs` of a tool. Where a world cannot be had, each tool has one row that says so.
    """
    rows: list[dict[str, Json]] = []
    if source is None:
        return rows
    due_units: dict[str, list[WritingUnit]] = defaultdict(list)
    for unit in units:
        if unit.world and unit.key in due:
            due_units[unit.own["server_id"]].append(unit)
    tools = _group_tools(units)
    for server, server_units in due_units.items():
        try:
            tasks = source.draw_tasks(server, tools[server])
        except Exception as error:
            is_known = isinstance(error, WorldUnavailable)
            problem = str(error) if is_known else describe_failure(error)
            failure = StepFailed(STEP, "world_failed", problem, "see `toolmill worlds --check`")
            rows += [
                _start_row(item, due, 0, llm, policy).make_row(failure) for item in server_units
            ]
            continue
        for unit in server_units:
            mine = [item for item in tasks if item.tool == unit.own["tool"]]
            rows += [
                _write_row(_start_row(unit, due, number, llm, policy), task)
                for number, task in enumerate(mine[: policy.world_pairs])
            ]
    return rows


def _group_tools(units: Sequence[WritingUnit]) -> dict[str, list[str]]:
    """Server -> its tools that pairs are written of."""
    tools: dict[str, list[str]] = defaultdict(list)
    for unit in units:
        if unit.task == SINGLE:
            tools[unit.own["server_id"]].append(unit.own["tool"])
    return tools


def _start_row(
    unit: WritingUnit, due: Mapping[str, str], number: int, llm: LLM, policy: SynthesisPolicy
) -> RowBuilder:
    writing = RowBuilder(unit, due[unit.key], policy.pairs_per_tool + number, llm, policy)
    writing.columns |= {"kind": KINDS[0], "profile": "{}", "provider": OFFLINE, "model": STEP}
    return writing


def _write_row(writing: RowBuilder, task: WorldTask) -> dict[str, Json]:
    row = writing.unit.own
    writing.columns |= {"seed": task.origin.seed, "world_task": dump_text(asdict(task.origin))}
    writing.shown = {row["contract_digest"]: row}
    try:
        text = writing.set_request(STEP, task.request)
        arguments = check_values(STEP, task.arguments)
        messages = [make_user_message(text), make_call_message(1, [(task.tool, arguments)])]
        writing.set_conversation(messages, [make_golden(row, arguments)], [row])
        writing.verify_row()
    except StepFailed as failure:
        return writing.make_row(failure)
    return writing.make_row()
