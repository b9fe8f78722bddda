"""Playing tasks: their reference calls against real servers, a wrong one first where asked for."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.canonical import ContractError, contract_digest
from assets.outcomes.outcome import TOOL_ERROR, TRUNCATED, USEFUL, classify_outcome
from assets.outcomes.trajectory import (
    KEPT,
    TRAJECTORIES,
    TaskTrajectory,
    TrajectoryStep,
    WorldStretch,
)
from assets.outcomes.worlds.session import (
    OpenWorld,
    WorldSession,
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
from warehouse.progress import Progress
from warehouse.sanitize.redact import redact
from warehouse.storage.tables import Tables

MOST_ANSWER = 8000  # characters, as an answer of a pair may have
MOST_TOLD = 2000  # characters of an answer that is handed on as it is
MOST_TRIES = 6  # wrong calls of a task that are tried until a server objects to one


@dataclass
class WorldStage:
    """An open world with a server at work in it. Used by one task at a time."""

    opened: OpenWorld
    fit: ServerFit
    session: WorldSession
    digests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, contract in self.session.contracts.items():
            if name in self.fit.tools:
                try:
                    self.digests[name] = contract_digest(contract)
                except ContractError:
                    continue

    def list_tasks(self, seed: int, n: int) -> list[Task]:
        """Tasks that this server can carry out here alone."""
        return [
            task
            for task in self.opened.tasks(seed, n)
            if self.fit.id in task.servers
            and {call.tool for call in task.calls} <= set(self.digests)
        ]

    async def put_back(self) -> None:
        """The world's first state, for a server that remembers nothing. Raises WorldFailed."""
        if self.fit.restart:
            await self.session.restart()
        self.opened.reset()


async def play_tasks(
    turns: Sequence[tuple[WorldStage, Task]], wrong: TaskCall | None = None
) -> TaskTrajectory:
    """Carries tasks out one after the other, each in its own world. wrong: a call that is made
    before the first right one. Raises WorldFailed."""
    steps: list[TrajectoryStep] = []
    places: list[WorldStretch] = []
    problems: list[str] = []
    words: list[str] = []
    for number, (stage, task) in enumerate(turns):
        await stage.put_back()
        before = stage.opened.digest_state()
        texts: list[str] = []
        if wrong is not None and number == 0:
            result, step = await _call(stage, wrong)
            steps.append(replace(step, wrong=True))
        for call in task.calls:
            result, step = await _call(stage, call)
            steps.append(step)
            texts += join_texts([result])
            if step.outcome != USEFUL:
                problems.append(f"{call.tool}: {step.outcome}")
                break
        else:
            if not task.check(stage.opened.read_facts(), texts):
                problems.append(f"{task.name}: the end state or answer is not the one asked for")
        words.append(_write_answer(task, steps[-1].answer))
        after = stage.opened.digest_state()
        places.append(WorldStretch(task.world, task.name, task.seed, before, after))
    offered = {
        name: (stage.fit.id, stage.session.contracts[tool])
        for stage, _ in turns
        for tool, name in stage.digests.items()
    }
    requests = [task.request for _, task in turns]
    first, *others = requests
    request = " ".join([first, *(f"After that: {other[0].lower()}{other[1:]}" for other in others)])
    answer = "\n\n".join(words)
    return TaskTrajectory(
        request, tuple(steps), answer, tuple(places), offered, "; ".join(problems) or None
    )


async def play_recovery(stage: WorldStage, task: Task) -> TaskTrajectory | None:
    """A task with a first call that its server refuses; None without one. Raises WorldFailed."""
    first = stage.opened.read_first_facts()
    others = [calls[0] for calls in perturb_task(task, first, stage.opened.seed, DATA)]
    wrong = [*_perturb_call(task.calls[0]), *others]
    for call in [item for item in wrong if item != task.calls[0]][:MOST_TRIES]:
        result = await play_tasks([(stage, task)], call)
        tried = result.steps[0]
        if tried.outcome == TOOL_ERROR and tried.answer and tried.before == tried.after:
            return result
    return None


async def play_stage(stage: WorldStage, seed: int, n: int) -> AsyncIterator[TaskTrajectory]:
    """Every task of a stage, and each with a recovery where there is one. Raises WorldFailed."""
    for task in stage.list_tasks(seed, n):
        yield await play_tasks([(stage, task)])
        if (recovery := await play_recovery(stage, task)) is not None:
            yield recovery


def match_stages(
    stages: Sequence[WorldStage], seed: int, n: int
) -> Iterator[list[tuple[WorldStage, Task]]]:
    """Two tasks of two servers in worlds of their own, as one request: each task once."""
    for stage, other in itertools.pairwise(stages):
        if stage.fit.id != other.fit.id and not set(stage.digests) & set(other.digests):
            tasks = zip(stage.list_tasks(seed, n), other.list_tasks(seed, n), strict=False)
            for first, second in tasks:
                yield [(stage, first), (other, second)]


def find_outcome(result: CallResult, arguments: Mapping[str, Any]) -> str:
    """The outcome of one call; an answer too long for a prompt is truncated."""
    kind = classify_outcome(result, arguments, offline=True).kind
    too_long = len("\n".join(join_texts([result]))) > MOST_ANSWER
    return TRUNCATED if kind == USEFUL and too_long else kind


async def _call(stage: WorldStage, call: TaskCall) -> tuple[CallResult, TrajectoryStep]:
    before = stage.opened.digest_state()
    [result] = await stage.session.run_calls([call])
    outcome = find_outcome(result, call.arguments)
    unsafe = result.alarming or result.unread  # what nobody may be handed is not kept either
    text = "" if unsafe else redact("\n".join(join_texts([result]))[:MOST_ANSWER])
    identity = stage.fit.id, call.tool, stage.digests[call.tool], dict(call.arguments)
    return result, TrajectoryStep(*identity, text, outcome, before, stage.opened.digest_state())


def _perturb_call(call: TaskCall) -> list[TaskCall]:
    """The call with one word of one of its texts misspelt: of a path each part, from its end."""
    results = []
    for name, value in call.arguments.items():
        segments = value.removeprefix(f"{DATA}/").split("/") if isinstance(value, str) else []
        for place in reversed(range(len(segments))):
            if segments[place]:
                wrong = [*segments[:place], f"{segments[place]}x", *segments[place + 1 :]]
                path = value.removesuffix("/".join(segments)) + "/".join(wrong)
                results.append(TaskCall(call.tool, {**call.arguments, name: path}))
    return results


def _write_answer(task: Task, last: str) -> str:
    """The words that end a task: what was asked for as the server told it, or that it is done."""
    if task.changes_state and not task.answer:
        return "Done."
    answer = last.strip()
    return answer if 0 < len(answer) <= MOST_TOLD else "\n".join(task.answer) or "Done."


@dataclass
class TrajectoryCollection:
    """What was played, and the worlds and servers that could not be."""

    made: list[TaskTrajectory] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def get_figures(self) -> dict[str, Any]:
        """Counts for people."""
        dropped = Counter(item.why for item in self.made if item.why)
        return {
            "played": len(self.made),
            "kept": len(self.made) - dropped.total(),
            "recoveries": sum(
                len(item.right) < len(item.steps) for item in self.made if not item.why
            ),
            "two_servers": sum(len(item.places) > 1 for item in self.made if not item.why),
            "dropped": dict(dropped.most_common()),
            "problems": self.problems,
        }


async def collect_trajectories(
    collection: TrajectoryCollection,
    worlds: Sequence[WorldSpec],
    policy: DeployPolicy,
    ledger: Ledger,
    run_date: str,
    progress: Progress,
    *,
    servers: Collection[str] = (),
    seed: int = 1,
    n: int = 1,
) -> None:
    """Plays `n` tasks of each kind; what is played is in `found` at once. servers: only these, by
    id; () for all. What one world or server cannot do is a problem and costs the others nothing."""
    stages = list[WorldStage]()
    cache = policy.home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trajectories-", dir=cache)))
        for world in worlds:
            for fit in world.servers:
                if servers and fit.id not in servers:
                    continue
                try:
                    place = folder / str(len(stages) + len(collection.problems))
                    opened = stack.enter_context(open_world(world, seed, place))
                    session = open_session(opened, fit, policy, ledger, run_date)
                    stage = WorldStage(opened, fit, await stack.enter_async_context(session))
                    stage.list_tasks(seed, n)  # a template that nothing fills fails here alone
                    stages.append(stage)
                except (WorldFailed, WorldFileError, SandboxUnavailable) as error:
                    collection.problems.append(f"{world.name}, {fit.id}: {error}")
                    continue
                try:
                    async for item in play_stage(stage, seed, n):
                        collection.made.append(item)
                except WorldFailed as error:
                    collection.problems.append(str(error))
                progress.update("trajectories", len(stages), sum(len(w.servers) for w in worlds))
        for pair in match_stages(stages, seed, n):
            try:
                collection.made.append(await play_tasks(pair))
            except WorldFailed as error:
                collection.problems.append(str(error))


def publish_trajectories(tables: Tables, played: Sequence[TaskTrajectory], run_id: str) -> int:
    """Adds trajectories to the published ones; returns how many are kept in all."""
    rows = {row["trajectory_id"]: row for row in tables.read(TRAJECTORIES).to_dicts()}
    rows |= {row["trajectory_id"]: row for row in (item.make_row() for item in played)}
    tables.promote(tables.stage(TRAJECTORIES, TRAJECTORIES.frame(rows.values())), run_id, [])
    return sum(row["status"] == KEPT for row in rows.values())
