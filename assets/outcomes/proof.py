"""Proof by execution: a world's own check proves its task, and wrong calls must fail it. A call
that worked when its server was explored is proved where each other value changes its outcome. Any
other call can only be refuted, by its own failure."""

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.environment import choose_world, digest_task, digest_world
from assets.outcomes.execution import CallExecution, ToolCall, WatchedCall
from assets.outcomes.outcome import USEFUL
from assets.outcomes.table import PROVED, REFUTED, UNPROVED
from assets.outcomes.worlds.session import OpenWorld, open_world
from assets.outcomes.worlds.spec import TaskTemplate, WorldSpec
from assets.outcomes.worlds.task import (
    Task,
    make_tasks,
    perturb_task,
    perturb_value,
    replace_leaf,
    walk_leaves,
)
from assets.outcomes.worlds.tree import WorldFailed, WorldFileError
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.tables import TaskOrigin, WorldTask, WorldUnavailable, dump_text
from assets.vectors.lexicon import split_identifier
from warehouse.storage.digest import digest

Facts = Mapping[str, Any]

_ANSWERED = ("ok", "tool_error")  # what else comes back says nothing about the arguments
_OTHERS = ("credentials", "upstream", "us")  # whose failure is none of the arguments' either
MOST = 6  # wrong calls that are tried, one after the other
_MOST_VALUES = 3  # values of an explored call that are changed, one in each call

Perturbed = Callable[[Facts], Awaitable[WatchedCall]]


@dataclass(frozen=True)
class CallProof:
    """verdict: proved, refuted, unproved. why: one line of what it rests on."""

    verdict: str
    why: str


def is_answered(done: CallExecution) -> bool:
    """Whether what came back says something about the arguments."""
    return done.status in _ANSWERED and done.blame not in _OTHERS


def judge_failure(done: CallExecution) -> CallProof | None:
    """What a call that was not useful decides; None for one that was."""
    if done.outcome == USEFUL:
        return None
    refuted = done.blame == "caller"
    return CallProof(REFUTED if refuted else UNPROVED, f"{done.outcome}: {done.evidence}"[:300])


def judge_call(done: CallExecution) -> CallProof:
    """What a call that carries out no task of a world decides."""
    return judge_failure(done) or CallProof(UNPROVED, "no task of a world checks what it did")


# Drawn of each template. Two servers of the same tools take different ones of them: else the second
# one's requests would all repeat the first one's.
DRAWS = 8


@dataclass(frozen=True)
class WorldTasks:
    """The tasks of worlds. seed: of the worlds; folder: where they are opened to draw from."""

    worlds: tuple[WorldSpec, ...]
    seed: int
    folder: Path

    def digest_tasks(self, server_id: str, tools: Collection[str]) -> dict[str, str]:
        """Tool -> digest of all that decides its tasks, of the tools that have any."""
        world = choose_world(server_id, self.worlds, tools)
        digests: dict[str, list[str]] = defaultdict(list)
        single = list(_list_single(world, server_id, tools))
        try:
            first = digest_world(world, self.seed) if single else ""
            decides = [digest_task(world, item.name, first) for item in single]
        except WorldFileError as error:
            decides = [str(error)] * len(single)  # drawing says so
        for template, decisive in zip(single, decides, strict=True):
            digests[template.calls[0].tool].append(decisive)
        return {tool: digest([DRAWS, *task_digests]) for tool, task_digests in digests.items()}

    def draw_tasks(self, server_id: str, tools: Collection[str]) -> list[WorldTask]:
        """The tasks of these tools, one of every form first. Raises WorldUnavailable."""
        world = choose_world(server_id, self.worlds, tools)
        names = {item.name for item in _list_single(world, server_id, tools)}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (
                TemporaryDirectory(prefix="tasks-", dir=self.folder) as place,
                open_world(world, self.seed, Path(place)) as opened,
            ):
                drawn = [task for task in opened.tasks(self.seed, DRAWS) if task.name in names]
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
    call: ToolCall, task: Task, first: Facts, watched: WatchedCall, run_perturbed: Perturbed
) -> CallProof:
    """Whether a call carried its task out and no wrong call passes the check. first: facts of the
    first state; run_perturbed: makes the call with other arguments there."""
    if (failed := judge_failure(watched.execution)) is not None:
        return failed
    if not task.check(watched.after, [watched.execution.text]):
        return CallProof(REFUTED, f"{task.name}: the end state or answer is not the one asked for")
    others = (other.arguments for [other] in perturb_task(task, first, task.seed, DATA))
    fitting = (arguments for arguments in others if not find_problems(call.contract, arguments))
    wrong = list(islice(fitting, MOST))
    for arguments in wrong:
        other = await run_perturbed(arguments)
        if not is_answered(other.execution):
            why = f"a wrong call was not answered: {other.execution.evidence}"
            return CallProof(UNPROVED, why[:300])
        if task.check(other.after, [other.execution.text]):
            return CallProof(UNPROVED, f"{task.name}: a wrong call passes its check too")
    if not wrong:
        return CallProof(UNPROVED, f"{task.name}: no other arguments can be tried")
    return CallProof(PROVED, f"{task.name}: ends as asked for")


async def prove_observed(
    call: ToolCall, first: Facts, watched: WatchedCall, run_perturbed: Perturbed
) -> CallProof:
    """Whether another value in the place of any that names something changes what a call that was
    taken from an exploration does. first, run_perturbed: as in `prove_task`."""
    if (failed := judge_failure(watched.execution)) is not None:
        return failed
    others = islice(_change_values(call, first), _MOST_VALUES)
    changed: list[str] = []
    for name, value, other, arguments in others:
        tried = await run_perturbed(arguments)
        if not is_answered(tried.execution):
            return CallProof(UNPROVED, f"a call with another {name} was not answered"[:300])
        if not _differs(watched, tried, value, other):
            return CallProof(UNPROVED, f"another {name} gives the same outcome"[:300])
        changed.append(name)
    if not changed:
        return CallProof(UNPROVED, "no value of it names anything")
    again = await run_perturbed(call.arguments)  # a clock, a count or a limit differs by itself
    if again.execution.outcome != USEFUL or _differs(watched, again, "", ""):
        return CallProof(UNPROVED, "the same call gives another outcome later")
    return CallProof(PROVED, f"other values change the outcome: {', '.join(changed)}"[:300])


def _change_values(call: ToolCall, first: Facts) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """(parameter, its value, another, arguments) for each text or id that the contract lets change;
    a choice, a switch and a count name nothing."""
    keys, rng = sorted(first), Random(dump_text(dict(call.arguments)))
    for path, value in walk_leaves(call.arguments):
        name = str(next(part for part in reversed(path) if isinstance(part, str)))
        is_id = isinstance(value, int) and "id" in split_identifier(name)
        if isinstance(value, str) or (is_id and not isinstance(value, bool)):
            other = perturb_value(value, keys, rng, DATA)
            arguments = replace_leaf(call.arguments, path, other)
            if not find_problems(call.contract, arguments):
                yield name, value, other, arguments


def _differs(watched: WatchedCall, other: WatchedCall, value: Any, changed: Any) -> bool:
    """Whether two calls left other states, or answers that differ by more than the value itself:
    one that repeats its input says the same of both."""
    done, tried = watched.execution, other.execution
    if done.changes_state or tried.changes_state:
        return watched.after != other.after
    if tried.outcome != USEFUL:
        return True
    if done.differs is not False or done.withheld or tried.withheld:
        return False  # an answer of its own each time tells nothing
    mine, others = (item.text or json.dumps(item.structured) for item in (done, tried))
    # The longer ones first: "ax", which is tried in the place of "a", holds it.
    for form in sorted({*_write_forms(value), *_write_forms(changed)} - {""}, key=len)[::-1]:
        mine, others = mine.replace(form, "\0"), others.replace(form, "\0")
    return mine != others


def _write_forms(value: Any) -> list[str]:
    """A value as answers repeat it: as it is, and as JSON and Python write it."""
    texts = [json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value)]
    return [str(value), *(text[1:-1] if isinstance(value, str) else text for text in texts)]


def _list_single(world: WorldSpec, server_id: str, tools: Collection[str]) -> list[TaskTemplate]:
    """The forms of tasks that one call of one of these tools carries out."""
    tool_names = {tool for fit in world.servers if fit.id == server_id for tool in fit.tools} & set(
        tools
    )
    single = [
        task for task in world.tasks if len(task.calls) == 1 and task.calls[0].tool in tool_names
    ]
    return [item for item in single if not item.servers or server_id in item.servers]


def _take_turns(drawn: Sequence[Task], server_id: str) -> list[Task]:
    """One of every form, then a second of each; where a form begins is the server's own."""
    forms: dict[str, list[Task]] = defaultdict(list)
    for task in drawn:
        forms[task.name].append(task)
    turned = []
    for name, tasks in forms.items():
        start = int(digest([server_id, name])[:8], 16) % len(tasks)
        turned.append([*tasks[start:], *tasks[:start]])
    return [task for turn in zip_longest(*turned) for task in turn if task is not None]


def _make_world_task(task: Task) -> WorldTask:
    [call] = task.calls
    origin = TaskOrigin(task.world, task.seed, task.name, task.id)
    return WorldTask(origin, call.tool, task.request, call.arguments)
