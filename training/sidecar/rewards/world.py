"""What a call comes to in a replayed world: alone, or with the rest of its task after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from assets.contracts.canonical import contract_digest
from assets.outcomes.outcome import USEFUL
from assets.outcomes.replay.environment import ReplayEnvironment
from assets.outcomes.replay.recording import Recording, ReplayTask


class ScoreCall(Protocol):
    """What a call is worth in the world that a row names, 0 to 1; None where nobody knows."""

    def __call__(
        self, reference: str, contract: Mapping[str, Any], call: Mapping[str, Any]
    ) -> float | None: ...


@dataclass(frozen=True)
class WorldScorer:
    """Scores calls in the worlds of a recording. reference: a task's id, or `id#n` where n of the
    task's own calls come before. whole: what the whole trajectory is worth, the task's own later
    calls made after this one; else whether the call's own answer is useful. None for a call that
    was never recorded, or by a contract that was not: nothing is made up."""

    recording: Recording
    whole: bool = False

    def __call__(
        self, reference: str, contract: Mapping[str, Any], call: Mapping[str, Any]
    ) -> float | None:
        name, _, before = reference.partition("#")
        task = self.recording.tasks.get(name)
        if task is None or (before and not before.isdigit()):
            return None
        environment, done = ReplayEnvironment(self.recording), int(before or 0)
        environment.reset(name)
        _make_own_calls(environment, task, 0, done)
        made = environment.step(str(call["name"]), call["arguments"], contract_digest(contract))
        if made.missed:
            return None
        if not self.whole:
            return float(made.outcome == USEFUL)
        _make_own_calls(environment, task, done + 1, len(task.calls))
        found = environment.score()
        return found.reward if found.known else None


def _make_own_calls(environment: ReplayEnvironment, task: ReplayTask, first: int, end: int) -> None:
    for one in task.calls[first:end]:
        environment.step(one.tool, one.arguments, one.contract_digest)
