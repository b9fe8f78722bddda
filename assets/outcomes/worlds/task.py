"""Tasks: a request, the calls that carry it out, and a check of what is then the state."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from assets.outcomes.worlds.changes import ChangeImpossible, Facts, apply_changes
from assets.outcomes.worlds.errors import WorldFileError
from assets.outcomes.worlds.spec import TaskTemplate, World
from assets.outcomes.worlds.template import NothingToDraw, draw_values, fill_template
from warehouse.storage.digest import digest

_TRIES = 20  # draws of one task until its changes are possible


class Checkable(Protocol):
    """What a task is checked against: an open world."""

    def read_facts(self) -> Facts: ...


@dataclass(frozen=True)
class TaskCall:
    """One call of a reference solution, as it is sent."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One task in one world.

    servers: each of them can carry it out alone. calls: the reference solution, in order.
    expected: the facts of the state that it must end in. answer: texts that the results must hold.
    """

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

    def check(self, world: Checkable, answers: Sequence[str] = ()) -> bool:
        """Whether the world is in the state that was asked for, and nothing else has changed; and
        whether the answers, the results' texts, hold what was asked. Without changes the answers
        are all that tells. Raises WorldFailed where the state cannot be read."""
        return self.holds_answers(answers) and world.read_facts() == self.expected

    def holds_answers(self, answers: Sequence[str]) -> bool:
        """Whether the results' texts hold all that was asked for."""
        held = " ".join(" ".join(answers).split())
        return all(" ".join(text.split()) in held for text in self.answer)


def make_tasks(world: World, facts: Mapping[str, Any], seed: int, root: str, n: int) -> list[Task]:
    """Tasks from each template of a world, at most `n` of each, all different. facts: of its first
    state. Raises WorldFileError for a template that no draw can fill."""
    return [task for one in world.tasks for task in _make_some(world, one, facts, seed, root, n)]


def _make_some(
    world: World, template: TaskTemplate, facts: Mapping[str, Any], seed: int, root: str, n: int
) -> Iterator[Task]:
    rng = Random(f"{world.name}/{template.name}/{seed}")
    made, problem = set[str](), "nothing to draw"
    for _ in range(n * _TRIES):
        try:
            task = _make_task(world, template, facts, seed, rng, root)
        except (NothingToDraw, ChangeImpossible) as error:
            problem = str(error)
            continue
        if task.id not in made:
            made.add(task.id)
            yield task
        if len(made) == n:
            return
    if not made:
        raise WorldFileError(f"{world.path}: task {template.name!r}: {problem}")


def _make_task(
    world: World,
    template: TaskTemplate,
    facts: Mapping[str, Any],
    seed: int,
    rng: Random,
    root: str,
) -> Task:
    values = draw_values(template.draw, facts, rng, root)
    calls = tuple(
        TaskCall(call.tool, fill_template(call.arguments, values)) for call in template.calls
    )
    tools = {call.tool for call in calls}
    suited = [server.id for server in world.servers if tools <= set(server.tools)]
    return Task(
        world.name,
        template.name,
        seed,
        fill_template(rng.choice(template.requests), values),
        tuple(one for one in suited if one in (template.servers or suited)),
        calls,
        apply_changes(facts, fill_template(template.changes, values)),
        tuple(str(one) for one in fill_template(template.answer, values)),
        bool(template.changes),
    )
