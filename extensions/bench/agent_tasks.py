"""Tasks for an agent: accepted pairs whose tools really run here.

A pair is a task if it asks for one call, its server is launched in the sandbox without a network,
and its golden call, made in a server that was just started, is answered without an error. What is
left out is counted by reason: a rate over tasks says nothing of tools that do not run here.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.servers.calls.caller import ToolCaller
from assets.synthesis.tables import ONE_CALL
from training.sets.pool import ToolPool, draw_candidates
from warehouse.json_types import Contract, Row
from warehouse.storage.digest import sha256

# Servers of one task, just started: what a task changes in them no other task sees.
Fresh = Callable[[], AbstractAsyncContextManager[ToolCaller]]


@dataclass(frozen=True)
class AgentTask:
    """One request with its golden call. owners: tool name -> (server, contract), of the tools
    offered; a name is offered once."""

    task_id: str
    server_id: str
    tool: str
    instruction: str
    arguments: dict[str, Any]
    contract: Contract
    tools: list[Contract]
    owners: Mapping[str, tuple[str, Contract]]
    group: str
    split: str = ""


def make_tasks(
    rows: Sequence[Row], pool: Mapping[str, Row], runs: Callable[[str], bool], n: int = 10
) -> tuple[list[AgentTask], dict[str, int]]:
    """(tasks in an order of their own, reason -> rows left out). rows: of TRAINING_SET. pool:
    contract digest -> {server_id, tool, contract} of what may be shown to a model; `runs` says
    which servers are launched here. n: tools offered in a task, half of them hard to tell apart."""
    offered = {name: entry for name, entry in pool.items() if runs(entry["server_id"])}
    drawn = ToolPool(offered)
    counts: Counter[str] = Counter()
    made = []
    for row in sorted(rows, key=lambda row: sha256(row["pair_id"].encode())):
        if reason := _find_unfit_reason(row, offered, runs):
            counts[reason] += 1
        else:
            made.append(_make_task(row, drawn, offered, n))
    return made, dict(sorted(counts.items()))


async def select_runnable_tasks(
    tasks: Sequence[AgentTask],
    fresh: Fresh,
    most: int,
    timeout_s: float = 30.0,
    on_done: Callable[[int, int], None] | None = None,
) -> tuple[list[AgentTask], dict[str, int]]:
    """(the first `most` tasks whose golden call is answered, reason -> tasks tried and left out).
    Servers take turns, so that one with many pairs is not all there is."""
    kept: list[AgentTask] = []
    counts: Counter[str] = Counter()
    dead: set[str] = set()
    for task in _interleave_servers(tasks):
        if len(kept) == most:
            break
        if task.server_id in dead:
            counts["server_does_not_start"] += 1
            continue
        async with fresh() as caller:
            result = await caller.call(
                task.server_id, task.tool, task.contract, task.arguments, timeout_s=timeout_s
            )
        if result.status == "ok":
            kept.append(task)
            if on_done:
                on_done(len(kept), most)
        else:
            counts[f"golden_call_{result.error_kind or result.status}"] += 1
            if result.status == "failed" and result.error_kind not in _OF_ONE_CALL:
                dead.add(task.server_id)
    return kept, dict(sorted(counts.items()))


# Failures that speak of one call; the others would meet every call of that server.
_OF_ONE_CALL = (
    "timeout_call",
    "timeout_host",
    "crashed",
    "protocol_error",
    "tool_gone",
    "contract_changed",
)


def open_fresh_callers(make: Callable[[], ToolCaller]) -> Fresh:
    """`make` as a context that ends its servers."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[ToolCaller]:
        caller = make()
        try:
            yield caller
        finally:
            await caller.close()

    return opened


def _find_unfit_reason(row: Row, offered: Mapping[str, Row], runs: Callable[[str], bool]) -> str:
    """Why a row is no task; "" where it is one."""
    if (row.get("task") or ONE_CALL[0]) not in ONE_CALL or row.get("arguments") is None:
        return "not_one_call"
    if not runs(row["server_id"]):
        return "server_not_launched_here"
    if row["contract_digest"] not in offered:
        return "contract_gone_or_held"
    return ""


def _make_task(row: Row, pool: ToolPool, offered: Mapping[str, Row], n: int) -> AgentTask:
    gold = pool[row["contract_digest"]]
    chosen = draw_candidates(row, pool, n, distractors="mixed")
    digests = {id(pool[name]): name for name in pool}
    owners = {tool["name"]: (offered[digests[id(tool)]]["server_id"], tool) for tool in chosen} | {
        gold["name"]: (row["server_id"], gold)
    }
    return AgentTask(
        task_id=row["pair_id"],
        server_id=row["server_id"],
        tool=row["tool"],
        instruction=row["instruction"],
        arguments=json.loads(row["arguments"]),
        contract=gold,
        tools=chosen,
        owners=owners,
        group=row.get("text_digest") or str(ToolId.of_row(row)),
        split=row.get("split") or "",
    )


def _interleave_servers(tasks: Sequence[AgentTask]) -> list[AgentTask]:
    """One task of each server, then a second of each, and so on."""
    counts: Counter[str] = Counter()
    rounds = []
    for place, task in enumerate(tasks):
        rounds.append((counts[task.server_id], place, task))
        counts[task.server_id] += 1
    return [task for _, _, task in sorted(rounds, key=lambda item: item[:2])]
