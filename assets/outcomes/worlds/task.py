"""Tasks: a request, the calls that carry it out, and a check of what is then the state."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from assets.outcomes.worlds.changes import ChangeImpossible, Facts, apply_changes
from assets.outcomes.worlds.spec import TaskTemplate, WorldSpec
from assets.outcomes.worlds.template import NothingToDraw, draw_values, fill_template
from assets.outcomes.worlds.tree import WorldFileError
from warehouse.storage.digest import digest

_TRIES = 20  # draws of one task until its changes are possible


@dataclass(frozen=True)
class TaskCall:
    """One call of a reference solution, as it is sent."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """servers: each can carry it out alone. calls: the reference solution. expected: facts at its
    end. answer: texts that the results must hold."""

    world: str
    name: str
    seed: int
    request: str
    servers: tuple[str, ...]
    calls: tuple[TaskCall, ...]
    expected: Facts = field(repr=False)
    answer: tuple[str, ...]
    changes_state: bool

    @property
    def id(self) -> str:
        """Names the task by what it asks and how it is carried out."""
        calls = [[call.tool, call.arguments] for call in self.calls]
        return digest([self.world, self.name, self.seed, self.request, calls])[:16]

    def check(self, facts: Mapping[str, Any], answers: Sequence[str] = ()) -> bool:
        """Whether this is the state that was asked for, and the results' texts hold the answer."""
        text = " ".join(" ".join(answers).split())
        holds = all(" ".join(part.split()) in text for part in self.answer)
        return holds and facts == self.expected


def make_tasks(
    world: WorldSpec, facts: Mapping[str, Any], seed: int, root: str, n: int
) -> list[Task]:
    """At most `n` different tasks from each template; facts: first state. Raises WorldFileError."""
    return [task for item in world.tasks for task in _make_some(world, item, facts, seed, root, n)]


def _make_some(
    world: WorldSpec, template: TaskTemplate, facts: Mapping[str, Any], seed: int, root: str, n: int
) -> Iterator[Task]:
    rng = Random(f"{world.name}/{template.name}/{seed}")
    ids, problem = set[str](), "nothing to draw"
    for _ in range(n * _TRIES):
        try:
            values = draw_values(template.draw, facts, rng, root)
            calls = tuple(
                TaskCall(call.tool, fill_template(call.arguments, values))
                for call in template.calls
            )
            tools = {call.tool for call in calls}
            suited = [server.id for server in world.servers if tools <= set(server.tools)]
            task = Task(
                world.name,
                template.name,
                seed,
                fill_template(rng.choice(template.requests), values),
                tuple(item for item in suited if item in (template.servers or suited)),
                calls,
                apply_changes(facts, fill_template(template.changes, values)),
                tuple(str(item) for item in fill_template(template.answer, values)),
                bool(template.changes),
            )
        except (NothingToDraw, ChangeImpossible) as error:
            problem = str(error)
            continue
        if task.id not in ids:
            ids.add(task.id)
            yield task
        if len(ids) == n:
            return
    if not ids:
        raise WorldFileError(f"{world.path}: task {template.name!r}: {problem}")


Leaf = tuple[Any, ...]  # where a value stands in arguments: keys of objects, places in lists


def perturb_task(
    task: Task, facts: Mapping[str, Any], seed: int, root: str
) -> list[list[TaskCall]]:
    """The task's calls, each with one text, number or truth value changed. facts: of the first
    state, whose keys are wrong paths."""
    rng, variants = Random(f"{task.id}/{seed}"), []
    keys = sorted(facts)
    for place, call in enumerate(task.calls):
        for path, value in walk_leaves(call.arguments):
            changed = perturb_value(value, keys, rng, root)
            arguments = replace_leaf(call.arguments, path, changed)
            calls = [*task.calls]
            calls[place] = TaskCall(call.tool, arguments)
            variants.append(calls)
    return variants


def walk_leaves(value: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """(place, value) of each text, number and truth value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk_leaves(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from walk_leaves(item, (*path, place))
    elif isinstance(value, str | int | float):
        yield path, value


def perturb_value(value: Any, keys: list[str], rng: Random, root: str) -> Any:
    """Another value of its type: for the path of a file, another file's. keys: of a world's facts;
    root: its folder as servers are shown it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + rng.randint(1, 3)
    if value.startswith(f"{root}/"):
        path = value.removeprefix(f"{root}/")
        depth = path.count("/")
        others = (
            [key for key in keys if key != path and key.count("/") == depth] if path in keys else []
        )
        if others:
            return f"{root}/{rng.choice(others)}"
        above, slash, name = path.rpartition("/")
        return f"{root}/{above}{slash}other-{name}"
    if value in keys:
        return rng.choice([key for key in keys if key != value] or [f"{value}x"])
    return f"{value}x"


def replace_leaf(arguments: Mapping[str, Any], path: Leaf, value: Any) -> dict[str, Any]:
    """The arguments with another value at one place."""
    changed = deepcopy(dict(arguments))
    parent: Any = changed
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    return changed
