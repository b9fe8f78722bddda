"""Intents and tasks: what is asked for in a world, and the rule that checks whether it was done."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, ConfigDict

from assets.outcomes.worlds.catalogue import find_world
from assets.outcomes.worlds.changes import ChangeImpossible, apply_changes
from assets.outcomes.worlds.session import open_world
from assets.outcomes.worlds.spec import ValueDraw
from assets.outcomes.worlds.task import Task
from assets.outcomes.worlds.template import NothingToDraw, draw_values, fill_template
from assets.servers.recipes.placeholders import DATA
from warehouse.storage.digest import digest

TRAIN, HELD_OUT = "train", "held-out"
_TRIES = 8  # draws in a row that give nothing new, after which an intent is exhausted


class UserIntent(BaseModel):
    """One thing that is asked for. requests: wordings of training tasks, held_out: of the others.
    slots: what an actor reads off a request; changes, answer: as of a world's task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    world: str
    category: str
    requests: tuple[str, ...]
    held_out: tuple[str, ...]
    draw: Mapping[str, ValueDraw] = {}
    slots: Mapping[str, Any]
    changes: tuple[Mapping[str, Any], ...] = ()
    answer: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchTask:
    """One request in the first state of a world that a seed made. check: the rule."""

    id: str
    split: str
    intent: str
    category: str
    world: str
    seed: int
    query: str
    slots: Mapping[str, Any] = field(repr=False)
    check: Task = field(repr=False)


def load_intents() -> list[UserIntent]:
    """The bench's own intents, in the order of their file."""
    text = Path(__file__).with_name("intents.toml").read_text(encoding="utf-8")
    return [UserIntent.model_validate(item) for item in tomllib.loads(text)["intents"]]


def draw_tasks(
    intents: Sequence[UserIntent], n: int, split: str, seeds: Sequence[int]
) -> list[BenchTask]:
    """`n` tasks, as evenly from all intents and seeds as these have different ones, shuffled by
    the seeds. Raises ValueError where there are not so many."""
    streams = [
        _draw_stream(intent, split, seed, facts)
        for seed in seeds
        for world in dict.fromkeys(intent.world for intent in intents)
        for facts in [_read_first_facts(world, seed)]
        for intent in intents
        if intent.world == world
    ]
    found: list[BenchTask] = []
    while streams and len(found) < n:
        left = []
        for stream in streams:
            task = next(stream, None)
            if task is not None:
                found.append(task)
                left.append(stream)
        streams = left
    if len(found) < n:
        raise ValueError(
            f"there are {len(found)} different {split} tasks, {n} are wanted: add seeds"
        )
    Random(f"{split}/{seeds}").shuffle(found)
    return found[:n]


def _draw_stream(
    intent: UserIntent, split: str, seed: int, facts: Mapping[str, Any]
) -> Iterator[BenchTask]:
    """Different tasks, until some draws in a row give nothing new."""
    rng, seen, idle = Random(f"{intent.name}/{split}/{seed}"), set[str](), 0
    while idle < _TRIES:
        task = _draw_task(intent, split, seed, facts, rng)
        if task is None or task.id in seen:
            idle += 1
            continue
        seen.add(task.id)
        idle = 0
        yield task


def _draw_task(
    intent: UserIntent, split: str, seed: int, facts: Mapping[str, Any], rng: Random
) -> BenchTask | None:
    wordings = intent.held_out if split == HELD_OUT else intent.requests
    try:
        values = draw_values(intent.draw, facts, rng, DATA)
        query = fill_template(rng.choice(wordings), values)
        slots = fill_template(intent.slots, values)
        expected = apply_changes(facts, fill_template(intent.changes, values))
        answer = tuple(str(item) for item in fill_template(intent.answer, values))
    except (NothingToDraw, ChangeImpossible):
        return None
    check = Task(
        intent.world, intent.name, seed, query, (), (), expected, answer, bool(intent.changes)
    )
    own = digest([intent.name, seed, query, slots])[:16]
    return BenchTask(
        own, split, intent.name, intent.category, intent.world, seed, query, slots, check
    )


def _read_first_facts(world: str, seed: int) -> dict[str, Any]:
    with TemporaryDirectory() as place, open_world(find_world(world), seed, Path(place)) as opened:
        return opened.read_first_facts()
