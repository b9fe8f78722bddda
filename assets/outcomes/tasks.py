"""Tasks of worlds as pairs: which suit a server, and whether an executed call carried one out."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from assets.contracts.repair.problems import find_problems
from assets.outcomes.environment import choose_world, digest_task, digest_world
from assets.outcomes.execution import ToolCall
from assets.outcomes.proof import (
    MOST,
    CallEffect,
    CallProof,
    Facts,
    Perturbed,
    is_answered,
    judge_failure,
)
from assets.outcomes.table import PROVED, REFUTED, UNPROVED
from assets.outcomes.worlds.session import OpenWorld, open_world
from assets.outcomes.worlds.spec import TaskTemplate, WorldSpec
from assets.outcomes.worlds.task import Task, make_tasks, perturb_task
from assets.outcomes.worlds.tree import WorldFailed, WorldFileError
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.tables import TaskOrigin, WorldTask, WorldUnavailable
from warehouse.storage.digest import digest

# Drawn of each template. Two servers of the same tools take different ones of them: else the second
# one's requests would all repeat the first one's.
DRAWS = 8


@dataclass(frozen=True)
class WorldTasks:
    """The tasks of worlds, for servers that they suit. seed: of the worlds that calls are executed
    in; folder: in which they are opened to draw from."""

    worlds: tuple[WorldSpec, ...]
    seed: int
    folder: Path

    def digest_tasks(self, server_id: str, tools: Collection[str]) -> dict[str, str]:
        """Tool -> digest of all that decides its tasks, of the tools that have any."""
        world = choose_world(server_id, self.worlds, tools)
        found: dict[str, list[str]] = defaultdict(list)
        single = list(_list_single(world, server_id, tools))
        try:
            first = digest_world(world, self.seed) if single else ""
            decides = [digest_task(world, item.name, first) for item in single]
        except WorldFileError as error:
            decides = [str(error)] * len(single)  # drawing says so
        for template, one in zip(single, decides, strict=True):
            found[template.calls[0].tool].append(one)
        return {tool: digest([DRAWS, *parts]) for tool, parts in found.items()}

    def draw_tasks(self, server_id: str, tools: Collection[str]) -> list[WorldTask]:
        """The tasks of these tools, one of every form before a second of any. Raises
        WorldUnavailable."""
        world = choose_world(server_id, self.worlds, tools)
        named = {item.name for item in _list_single(world, server_id, tools)}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (
                TemporaryDirectory(prefix="tasks-", dir=self.folder) as place,
                open_world(world, self.seed, Path(place)) as opened,
            ):
                drawn = [task for task in opened.tasks(self.seed, DRAWS) if task.name in named]
        except (WorldFailed, WorldFileError) as error:
            raise WorldUnavailable(str(error)) from error
        return [_make_world_task(turn) for turn in _take_turns(drawn, server_id)]


def find_task(opened: OpenWorld, origin: TaskOrigin) -> Task | None:
    """The task that a pair is, in its open world; None where the world holds it no more."""
    templates = tuple(task for task in opened.world.tasks if task.name == origin.task)
    only = opened.world.model_copy(update={"tasks": templates})
    drawn = make_tasks(only, opened.read_first_facts(), origin.seed, DATA, DRAWS)
    return next((item for item in drawn if item.id == origin.id), None)


async def prove_task(
    call: ToolCall, task: Task, first: Facts, effect: CallEffect, run_perturbed: Perturbed
) -> CallProof:
    """Whether an executed call carried its task out, and no wrong call passes the task's check.
    first: facts of the world's first state, which wrong calls are made of; run_perturbed: as in
    `prove_call`."""
    if (failed := judge_failure(effect.execution)) is not None:
        return failed
    if not task.check(effect.after, [effect.execution.text]):
        return CallProof(REFUTED, f"{task.name}: the end state or answer is not the one asked for")
    wrong = list(islice(_list_wrong(call, task, first), MOST))
    for arguments in wrong:
        execution, after = await run_perturbed(arguments)
        if not is_answered(execution):
            return CallProof(UNPROVED, f"a wrong call was not answered: {execution.evidence}"[:300])
        if task.check(after, [execution.text]):
            return CallProof(UNPROVED, f"{task.name}: a wrong call passes its check too")
    if not wrong:
        return CallProof(UNPROVED, f"{task.name}: no other arguments can be tried")
    return CallProof(PROVED, f"{task.name}: ends as asked for")


def _list_single(world: WorldSpec, server_id: str, tools: Collection[str]) -> list[TaskTemplate]:
    """The forms of tasks that one call of one of these tools carries out."""
    own = {tool for fit in world.servers if fit.id == server_id for tool in fit.tools} & set(tools)
    single = [task for task in world.tasks if len(task.calls) == 1 and task.calls[0].tool in own]
    return [item for item in single if not item.servers or server_id in item.servers]


def _take_turns(drawn: Sequence[Task], server_id: str) -> list[Task]:
    """One of every form, then a second of each; where a form begins is the server's own."""
    forms: dict[str, list[Task]] = defaultdict(list)
    for task in drawn:
        forms[task.name].append(task)
    turned = []
    for name, own in forms.items():
        start = int(digest([server_id, name])[:8], 16) % len(own)
        turned.append([*own[start:], *own[:start]])
    return [task for turn in zip_longest(*turned) for task in turn if task is not None]


def _make_world_task(task: Task) -> WorldTask:
    [call] = task.calls
    origin = TaskOrigin(task.world, task.seed, task.name, task.id)
    return WorldTask(origin, call.tool, task.request, call.arguments)


def _list_wrong(call: ToolCall, task: Task, first: Facts) -> Iterator[Facts]:
    """The call with one value of it changed, where its contract lets that through."""
    for [other] in perturb_task(task, first, task.seed, DATA):
        if not find_problems(call.contract, other.arguments):
            yield other.arguments
