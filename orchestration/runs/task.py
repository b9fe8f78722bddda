"""A job to run, and what a run of it came to; without the code location."""

from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg


@dataclass(frozen=True)
class Task:
    """A job to run: all of it, one partition (or one server of that), one role's part of the
    training, or some assets. tags: of its run, beside our own."""

    job: str
    partition: str | None = None
    role: str | None = None
    server: str | None = None
    names: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()

    def list_assets(self) -> list[dg.AssetKey] | None:
        """The assets to run; None: all that the job has."""
        if self.names:
            return [dg.AssetKey(name) for name in self.names]
        parts = ("adapter", "evaluation", "champion")
        return [dg.AssetKey(f"{self.role}_{part}") for part in parts] if self.role else None


@dataclass(frozen=True)
class Outcome:
    """What one run of a job came to."""

    task: Task
    run_id: str
    success: bool
    seconds: float
    failed_steps: list[str] = field(default_factory=list)
    interrupted: bool = False

    def as_row(self) -> dict[str, Any]:
        fields = asdict(self)
        task = fields.pop("task")
        del task["names"], task["tags"]
        return {**task, **fields}
