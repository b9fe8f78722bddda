"""What a call comes to in a replayed world: alone, or with the rest of its task after it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from assets.contracts.canonical import contract_digest
from assets.outcomes.outcome import USEFUL
from assets.outcomes.recording import ReplayRecording, ReplayTask, make_key
from assets.outcomes.replay_environment import ReplayEnvironment
from extensions.sidecar.rows import RevisionRow


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

    recording: ReplayRecording
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


def find_worlds(recording: ReplayRecording, rows: Iterable[RevisionRow]) -> list[RevisionRow]:
    """The rows, each with the reference `id#n` of the first recorded task whose call n is its right
    call, by the same contract; "" for one whose right call no task makes."""
    places: dict[str, str] = {}
    for name, task in sorted(recording.tasks.items()):
        for at, call in enumerate(task.calls):
            places.setdefault(make_key(call.contract_digest, call.arguments, ""), f"{name}#{at}")
    places.pop("", None)  # arguments without a canonical form
    return [replace(row, world=places.get(_make_right_key(row), "")) for row in rows]


def _make_right_key(row: RevisionRow) -> str:
    for call in row.right:
        contract = next((one for one in row.contracts if one["name"] == call["name"]), None)
        if contract is not None and isinstance(call["arguments"], Mapping):
            return make_key(contract_digest(contract), call["arguments"], "")
    return ""


def _make_own_calls(environment: ReplayEnvironment, task: ReplayTask, first: int, end: int) -> None:
    for call in task.calls[first:end]:
        environment.step(call.tool, call.arguments, call.contract_digest)
