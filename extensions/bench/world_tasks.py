"""Tasks of worlds, as tau-bench has them: a model works on a real server until it ends; then the
state of the world is checked, and nothing else in it may have changed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.trajectory_play import WorldStage
from assets.outcomes.worlds.catalogue import list_worlds
from assets.outcomes.worlds.session import join_texts, open_session, open_world
from assets.outcomes.worlds.spec import ServerFit, WorldSpec
from assets.outcomes.worlds.task import Task, TaskCall
from assets.outcomes.worlds.tree import WorldFailed, WorldFileError
from assets.servers.sandbox.spec import SandboxUnavailable
from extensions.bench.agent_tasks import render_result
from extensions.bench.benchmark_items import Ask, BenchmarkPlan, BenchmarkSet, make_item
from extensions.bench.benchmark_run import require_inspect
from training.evaluation.caller_items import CallerItem
from warehouse.json_types import Row

_TURNS, _CALLS = 8, 4  # of a model; of one turn
_SHOWN = 6_000  # characters of a result
_RUN = "worlds"  # the date under which the ledger keeps what a launch found


def read_worlds(plan: BenchmarkPlan) -> BenchmarkSet:
    """Each task of every world with each server that suits it. --data: a world file or a folder of
    them, beside the shipped ones. Options: world, server (only that one), tasks (of each template,
    1). A world or server that cannot be had here is left out by its reason. Raises UnusableInput,
    WorldFileError."""
    require_inspect()  # before servers are launched
    items, left_out, files = [], Counter[str](), []
    fits = list[tuple[WorldSpec, ServerFit]]()
    for entry in list_worlds([plan.data] if plan.data else ()):
        if entry.world is None:
            left_out[str(entry.problem)] += 1
        elif plan.options.get("world", entry.world.name) == entry.world.name:
            files.append(entry.path)
            fits += [(entry.world, fit) for fit in entry.world.servers]
    fits = [(world, fit) for world, fit in fits if plan.options.get("server", fit.id) == fit.id]
    for at, (world, fit) in enumerate(fits, 1):
        plan.progress.update("launching", at, len(fits), server=fit.id)
        try:
            items += asyncio.run(_list_items(world, fit, plan))
        except (WorldFailed, WorldFileError, SandboxUnavailable) as error:
            left_out[f"{world.name}, {fit.id}: {' '.join(str(error).split())[:200]}"] += 1

    async def play(item: CallerItem, ask: Ask) -> Row:
        """One task in a world of its own. Raises WorldFailed."""
        async with _open_stage(item.row["world"], item.row["fit"], plan) as stage:
            return await work_on_task(item, ask, stage)

    return BenchmarkSet("worlds", items, None, ("done", "valid"), files, dict(left_out), play=play)


async def _list_items(world: WorldSpec, fit: ServerFit, plan: BenchmarkPlan) -> list[CallerItem]:
    async with _open_stage(world, fit, plan) as stage:
        tools = [dict(stage.session.contracts[name]) for name in stage.digests]
        tasks = stage.list_tasks(plan.seed, plan.read_number("tasks", 1))
    items = []
    for task in tasks:
        calls = [{"name": call.tool, "arguments": call.arguments} for call in task.calls]
        name = f"{world.name}:{task.name}:{task.id}:{fit.id}"
        facts = {"world": world, "fit": fit, "task": task}
        items.append(make_item(name, world.name, fit.id, task.request, tools, calls, **facts))
    return items


@asynccontextmanager
async def _open_stage(
    world: WorldSpec, fit: ServerFit, plan: BenchmarkPlan
) -> AsyncIterator[WorldStage]:
    """A world of its own with a server that was just started."""
    assert plan.policy is not None
    assert plan.warehouse is not None
    cache, ledger = plan.policy.home / "cache", plan.warehouse.ledger
    cache.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="bench-", dir=cache) as place,
        open_world(world, plan.seed, Path(place)) as opened,
    ):
        async with open_session(opened, fit, plan.policy, ledger, _RUN) as session:
            yield WorldStage(opened, fit, session)


async def work_on_task(item: CallerItem, ask: Ask, stage: WorldStage) -> Row:
    """The model's turns on an open stage, and the check. done: the end state and the results are
    what was asked for; valid: every call named a tool that is offered, with arguments that fit."""
    task: Task = item.row["task"]
    offered = {tool["name"] for tool in item.tools}
    messages: list[dict[str, Any]] = [{"role": "user", "content": item.instruction}]
    texts, made, ended = list[str](), list[bool](), "turn_limit"
    for _ in range(_TURNS):
        answer = await ask(messages)
        if not answer.calls:
            ended = "answered" if answer.text.strip() else "empty"
            break
        calls = answer.calls[:_CALLS]
        ids = [f"call_{len(made) + at}" for at in range(len(calls))]
        functions = [
            {"id": name, "type": "function", "function": dict(call)}
            for name, call in zip(ids, calls, strict=True)
        ]
        messages.append({"role": "assistant", "content": answer.text, "tool_calls": functions})
        for name, call in zip(ids, calls, strict=True):
            reply = f"not run: no tool {call['name'][:100]!r} is offered"
            is_valid = call["name"] in offered
            if is_valid:
                run = TaskCall(call["name"], call["arguments"])
                (result,) = await stage.session.run_calls([run])
                reply = render_result(result, _SHOWN)
                is_valid = result.status != "invalid_arguments"
                texts += join_texts([result])
            made.append(is_valid)
            messages.append({"role": "tool", "tool_call_id": name, "content": reply})
    done = task.check(stage.opened.read_facts(), texts)
    wrong = "no_call" if not made else "wrong_end" if ended == "answered" else ended
    return {
        "done": done,
        "valid": bool(made) and all(made),
        "error_kind": None if done else wrong,
        "steps": len(made),
        "ended": ended,
    }
