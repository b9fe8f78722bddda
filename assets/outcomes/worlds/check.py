"""Whether worlds are what they say: resets are equal, and tasks can be proved by real servers."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.worlds.catalogue import KnownWorld
from assets.outcomes.worlds.session import (
    OpenWorld,
    WorldSession,
    find_missing,
    join_texts,
    open_session,
    open_world,
)
from assets.outcomes.worlds.spec import ServerFit, WorldSpec
from assets.outcomes.worlds.task import Task, TaskCall, perturb_task
from assets.outcomes.worlds.tree import WorldFailed, WorldFileError
from assets.servers.calls.result import CallResult
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.placeholders import DATA
from assets.servers.sandbox.spec import SandboxUnavailable
from warehouse.ledger.ledger import Ledger

_SEEDS = (1, 2)


def describe_worlds(worlds: Sequence[KnownWorld]) -> list[dict[str, Any]]:
    """A row a world file; why: what keeps it from being opened here, or null."""
    return [_describe_world(item) for item in worlds]


def check_resets(world: WorldSpec, place: Path) -> dict[str, Any]:
    """Opens a world by two seeds and resets it twice; `why` says which state was not the same."""
    row: dict[str, Any] = {"world": world.name, "kind": world.kind, "digests": [], "tasks_made": 0}
    if missing := find_missing(world):
        return {**row, "status": "unavailable", "why": missing}
    try:
        for seed in _SEEDS:
            with open_world(world, seed, place) as opened:
                digests = {opened.digest_state()}
                for _ in range(2):
                    opened.reset()
                    digests.add(opened.digest_state())
                row["tasks_made"] += len(opened.tasks(seed))
            row["digests"].append(min(digests))
            if len(digests) > 1:
                return {**row, "status": "failed", "why": f"seed {seed}: a reset is not the same"}
    except (WorldFailed, WorldFileError, OSError) as error:
        return {**row, "status": "failed", "why": str(error)}
    return {**row, "status": "ok", "why": None}


async def prove_tasks(
    world: WorldSpec, fit: ServerFit, policy: DeployPolicy, ledger: Ledger, run_date: str
) -> dict[str, Any]:
    """Runs each task's reference calls on one real server, and its perturbed calls. Every outcome
    is a row: `provable` where the reference passes and every perturbed call is caught."""
    row: dict[str, Any] = {"server": fit.id, "status": "ok", "why": None, "tasks": []}
    holds = policy.home / "cache"
    holds.mkdir(parents=True, exist_ok=True)
    try:
        with (
            TemporaryDirectory(prefix="world-", dir=holds) as place,
            open_world(world, _SEEDS[0], Path(place)) as opened,
        ):
            async with open_session(opened, fit, policy, ledger, run_date) as session:
                absent = sorted(set(fit.tools) - set(session.contracts))
                row |= {"tools": len(session.contracts), "absent": absent}
                if absent:
                    row |= {"status": "failed", "why": f"it has no tool {', '.join(absent)}"}
                suited = [task for task in opened.tasks(_SEEDS[0]) if fit.id in task.servers]
                for task in suited:
                    if {call.tool for call in task.calls} <= set(session.contracts):
                        row["tasks"].append(await _prove_task(opened, task, session, fit))
    except (WorldFailed, SandboxUnavailable) as error:
        return {**row, "status": "unavailable", "why": str(error)}
    if any(item["status"] == "failed" for item in row["tasks"]):
        row["status"] = "failed"
    return row


async def _prove_task(
    opened: OpenWorld, task: Task, session: WorldSession, fit: ServerFit
) -> dict[str, Any]:
    """`provable`, `leaky` where a perturbed call passes, `failed` where the reference does not."""
    row: dict[str, Any] = {"task": task.name, "id": task.id, "status": "provable", "why": None}
    results = await _run_afresh(opened, task.calls, session, fit)
    if not task.check(opened.read_facts(), join_texts(results)):
        last = results[-1]
        answer = " ".join(" ".join(join_texts([last])).split())[:200]
        why = last.hint or f"the end state or answer is not the one asked for: {answer}"
        return {**row, "status": "failed", "why": why, "perturbed": 0, "caught": 0}
    tally = Counter[str]()
    for calls in perturb_task(task, opened.read_first_facts(), opened.seed, DATA):
        results = await _run_afresh(opened, calls, session, fit)
        if results[-1].status == "invalid_arguments":
            continue  # the contract alone tells
        passed = task.check(opened.read_facts(), join_texts(results))
        tally["passed" if passed else "caught"] += 1
    if tally["passed"]:
        row |= {"status": "leaky", "why": f"{tally['passed']} wrong calls pass the check"}
    return {**row, "perturbed": tally.total(), "caught": tally["caught"]}


async def _run_afresh(
    opened: OpenWorld, calls: Sequence[TaskCall], session: WorldSession, fit: ServerFit
) -> list[CallResult]:
    if fit.restart:
        await session.restart()
    opened.reset()
    return await session.run_calls(calls)


def _describe_world(entry: KnownWorld) -> dict[str, Any]:
    if entry.world is None:
        return {
            "name": entry.path.stem,
            "kind": None,
            "file": str(entry.path),
            "why": entry.problem,
        }
    world, tasks = entry.world, entry.world.tasks
    with_tasks = {
        (fit.id, call.tool)
        for fit in world.servers
        for task in tasks
        if not task.servers or fit.id in task.servers
        for call in task.calls
        if {call.tool for call in task.calls} <= set(fit.tools)
    }
    return {
        "name": world.name,
        "kind": world.kind,
        "about": world.about,
        "file": str(entry.path),
        "servers": [fit.id for fit in world.servers],
        "tools": sum(len(fit.tools) for fit in world.servers),
        "tools_with_tasks": len(with_tasks),
        "tasks": [task.name for task in tasks],
        "why": entry.problem or find_missing(world),
    }
