"""Tasks of worlds: what a pair that is one knows of it, and where they come from."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from warehouse.json_types import Json, Row


@dataclass(frozen=True)
class TaskOrigin:
    """The task of a world that a row is: the world's name, the seed that decides its first state
    and what its tasks draw, the task's name, and the id by which it is found again and checked."""

    world: str
    seed: int
    task: str
    id: str


@dataclass(frozen=True)
class WorldTask:
    """A task that one call carries out. origin: where, and what checks it."""

    origin: TaskOrigin
    tool: str
    request: str
    arguments: dict[str, Json]


class WorldUnavailable(Exception):
    """A world whose tasks cannot be drawn here: which, and why."""


class TaskSource(Protocol):
    """Where tasks come from: `assets/outcomes/tasks.py`."""

    def digest_tasks(self, server_id: str, tools: Collection[str]) -> Mapping[str, str]:
        """Tool -> digest of all that decides its tasks, of the tools that have any."""
        ...

    def draw_tasks(self, server_id: str, tools: Collection[str]) -> Sequence[WorldTask]:
        """The tasks of these tools in the world that suits their server, the first to be taken
        first. Raises WorldUnavailable."""
        ...


def read_origin(row: Row) -> TaskOrigin | None:
    """The task of a world that a row of PAIRS is; None of one that was written for its contract."""
    held = row.get("world_task")
    return TaskOrigin(**json.loads(held)) if held else None
