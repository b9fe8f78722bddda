"""One rollout of one task: over recorded answers, or over real servers that `toolmill` runs.

The frameworks' modules only translate; what a call is answered and what a rollout is worth is
decided here and in `replay_environment.py`.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rfc8785
from jsonschema import validators
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from toolmill_env.replay_environment import (
    MOST_CALLS,
    RecordedAnswer,
    RecordedAnswers,
    ReplayEnvironment,
    ReplayMiss,
    RolloutScore,
    StepResult,
)

REPLAY, LIVE = "replay", "live"
MODE, PROGRAM = "TOOLENV_MODE", "TOOLENV_PROGRAM"  # settings of the environment
FINISH = "finish_task"
FINISH_TOOL = {
    "name": FINISH,
    "description": "Ends the task. Call it once everything that was asked for is done.",
    "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
}
_FOLDER = Path(__file__).parent
_MOST_LINE = 4 << 20  # bytes of one answer of `toolmill env live`


class UnknownTask(ValueError):
    """A task or a split that the taskset does not hold."""


class EpisodeOver(RuntimeError):
    """A call of an episode that has not begun or has ended."""


class WorldGone(RuntimeError):
    """A live task that cannot begin: its world or its server is not to be had here."""


class Recording(RecordedAnswers):
    """What was recorded, as `replay.jsonl` holds it."""

    def make_key(self, contract_digest: str, arguments: Mapping[str, Any], state: str) -> str:
        """Names a call: of its contract, its canonical arguments and the digest of the state."""
        try:
            data = rfc8785.dumps([contract_digest, dict(arguments), state])
        except (ValueError, TypeError, RecursionError, OverflowError):
            return ""  # no canonical form: a key that no recording holds
        return "x1:" + hashlib.sha256(data).hexdigest()

    def find_flaws(self, contract: Mapping[str, Any], arguments: Any) -> list[str]:
        """What does not fit the tool's schema. Nothing is fetched. Patterns are not asked: they are
        a third party's, and Python's take time without bound."""
        if not isinstance(arguments, Mapping):
            return [f"$: expected an object, found {type(arguments).__name__}"]
        try:
            schema = _drop_patterns(contract.get("inputSchema") or {})
            kind = validators.validator_for(schema, default=validators.Draft202012Validator)
            errors = kind(schema, registry=Registry()).iter_errors(dict(arguments))
            return [f"{error.json_path}: {error.message[:200]}" for error in errors][:20]
        except (SchemaError, Unresolvable, RecursionError, TypeError, ValueError) as error:
            return [f"$: the schema cannot be checked ({type(error).__name__})"]


def _drop_patterns(node: Any) -> Any:
    if isinstance(node, dict):
        left = {k: v for k, v in node.items() if k != "pattern" or not isinstance(v, str)}
        return {k: _drop_patterns(v) for k, v in left.items() if k != "patternProperties"}
    return [_drop_patterns(item) for item in node] if isinstance(node, list) else node


@dataclass
class Tasks:
    """The tasks of this package. rows: as `tasks.jsonl` holds them; facts: of the export."""

    recording: Recording
    rows: list[dict[str, Any]]
    facts: dict[str, Any]

    def select(self, split: str | None = None) -> list[dict[str, Any]]:
        """The rows of a split, of all where none is named. Raises UnknownTask."""
        rows = [row for row in self.rows if split in (None, row["split"])]
        if not rows:
            splits = ", ".join(sorted({row["split"] for row in self.rows}))
            raise UnknownTask(f"no split {str(split)[:60]!r}; this taskset has {splits}")
        return rows

    def choose(
        self,
        task_id: str | None = None,
        seed: int | None = None,
        split: str | None = None,
        index: int | None = None,
    ) -> dict[str, Any]:
        """The row of an id, else of a place in a split, else one that the seed draws, else the
        first. Raises UnknownTask."""
        if task_id is not None:
            for row in self.rows:
                if row["id"] == task_id:
                    return row
            known = ", ".join(row["id"] for row in self.rows[:3])
            raise UnknownTask(
                f"no task {str(task_id)[:60]!r}; tasks.jsonl lists all {len(self.rows)}: {known} …"
            )
        for name, number in (("seed", seed), ("index", index)):
            if number is not None and type(number) is not int:
                raise UnknownTask(f"{name}={str(number)[:60]!r}: expected a whole number")
        rows = self.select(split)
        if index is not None:
            if not 0 <= index < len(rows):
                raise UnknownTask(
                    f"no task {index} in {split or 'all splits'}: 0 to {len(rows) - 1}"
                )
            return rows[index]
        return rows[random.Random(seed).randrange(len(rows))] if seed is not None else rows[0]


@cache
def read_tasks(folder: Path = _FOLDER) -> Tasks:
    """The tasks in a folder, read once. Raises ValueError for a file that is not as it was
    exported."""
    facts = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    for name, digest in facts["files"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ValueError(f"{folder / name}: not as it was exported; export the taskset again")
    recording = Recording()
    for line in (folder / "replay.jsonl").read_text(encoding="utf-8").splitlines()[1:]:
        recording.read_line(json.loads(line))
    lines = (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return Tasks(recording, [json.loads(line) for line in lines], facts)


class LiveServers(Recording):
    """The task's servers in their worlds, run by `toolmill env live` in its sandbox."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        super().__init__(recording.contracts, {}, recording.tasks)
        program = os.environ.get(PROGRAM, "toolmill")
        if shutil.which(program) is None:
            raise WorldGone(
                f"no program {program!r}: live tasks need toolmill; install it, name it by"
                f" {PROGRAM}, or set {MODE}={REPLAY}"
            )
        self._process = subprocess.Popen(
            [program, "env", "live", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, task_id: str) -> None:
        """The task's worlds in their first states. Raises WorldGone."""
        reply = self._ask({"reset": task_id})
        if "error" in reply:
            raise WorldGone(f"{reply['error']}; or set {MODE}={REPLAY}")

    def answer(
        self, contract_digest: str, arguments: Mapping[str, Any], state: str
    ) -> RecordedAnswer:
        """What the server answers now. Raises ReplayMiss where none is there to be asked."""
        reply = self._ask({"call": contract_digest, "arguments": dict(arguments)})
        if "error" in reply:
            raise ReplayMiss("no_server", reply["error"])
        return RecordedAnswer(reply["text"], reply["outcome"], reply["after"])

    def close(self) -> None:
        """Ends the servers; their worlds are removed."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        try:
            asked.write(json.dumps(message) + "\n")
            asked.flush()
            return json.loads(answered.readline(_MOST_LINE))
        except (OSError, ValueError):
            raise WorldGone(
                "`toolmill env live` ended, and what it wrote to stderr says why: run it by hand on"
                f" {_FOLDER}, or set {MODE}={REPLAY}"
            ) from None


class Episode:
    """One rollout at a time; each client has an episode of its own. mode: "replay" or "live";
    default: the setting TOOLENV_MODE, else replay."""

    def __init__(self, mode: str | None = None, folder: Path = _FOLDER) -> None:
        self.mode = mode or os.environ.get(MODE) or REPLAY
        if self.mode not in (REPLAY, LIVE):
            raise ValueError(f"{MODE}={self.mode[:40]!r}: expected {REPLAY} or {LIVE}")
        self.tasks, self._folder = read_tasks(folder), folder
        self.row: dict[str, Any] | None = None
        self.ended = ""
        self._live: LiveServers | None = None
        self._play = ReplayEnvironment(self.tasks.recording)

    def reset(self, task_id: str | None = None, **which: Any) -> dict[str, Any]:
        """Begins a task in its first state; returns its row. which: as of `Tasks.choose`. Raises
        UnknownTask, WorldGone."""
        row = self.tasks.choose(task_id, **which)
        self.row = None
        if self.mode == LIVE:
            self._live = self._live or LiveServers(self.tasks.recording, self._folder)
            try:
                self._live.begin(row["id"])
            except WorldGone:
                self.close()
                raise
            self._play = ReplayEnvironment(self._live)
        self._play.reset(row["id"])
        self.row, self.ended = row, ""
        return row

    def list_tools(self) -> list[dict[str, Any]]:
        """{name, description, inputSchema} of the task's tools, and of the one that ends it; of the
        latter alone before a task has begun."""
        task = self._play.task if self.row else None
        contracts = self.tasks.recording.contracts
        offered = [contracts[name] for name in task.contracts] if task else []
        return [
            {
                "name": item["tool"],
                "description": str(item["contract"].get("description") or ""),
                "inputSchema": item["contract"].get("inputSchema") or {"type": "object"},
            }
            for item in sorted(offered, key=lambda item: item["tool"])
        ] + [FINISH_TOOL]

    def call(self, name: str, arguments: Any) -> StepResult:
        """Makes one call; whatever is given is a result. Raises EpisodeOver."""
        if self.row is None:
            raise EpisodeOver("no task has begun: reset the environment first")
        if self.ended:
            raise EpisodeOver(
                f"task {self.row['id']} has ended ({self.ended}): reset the environment to begin"
                " another"
            )
        if name == FINISH:
            self.ended = "it was finished"
            return StepResult("The task has ended.", "finished", valid=True)
        result = self._play.step(name, arguments)
        if result.outcome == "too_many_calls":
            self.ended = f"{MOST_CALLS} calls were made"
        return result

    def score(self) -> RolloutScore:
        """What the calls so far are worth. Raises EpisodeOver before a task has begun."""
        if self.row is None:
            raise EpisodeOver("no task has begun: reset the environment first")
        return self._play.score()

    def describe(self) -> dict[str, Any]:
        """The state: which task, how many calls and misses, whether it has ended, and how."""
        if self.row is None:
            return {"mode": self.mode, "calls": 0, "misses": 0, "done": False}
        steps = self._play.steps
        return {
            "mode": self.mode,
            "task_id": self.row["id"],
            "split": self.row["split"],
            "calls": len(steps),
            "misses": sum(step.missed for step in steps),
            "done": bool(self.ended),
            **({"score": asdict(self.score())} if self.ended else {}),
        }

    def close(self) -> None:
        """Ends live servers; the next reset launches them again."""
        if self._live is not None:
            self._live.close()
            self._live = None


def score_calls(
    task_id: str,
    calls: Sequence[Mapping[str, Any]],
    mode: str | None = None,
    folder: Path = _FOLDER,
) -> RolloutScore:
    """The score of a whole rollout: its calls in order, {name, arguments} each."""
    episode = Episode(mode, folder)
    try:
        episode.reset(task_id)
        for call in calls[: MOST_CALLS + 1]:
            if not episode.ended:
                episode.call(str(call.get("name")), call.get("arguments"))
        return episode.score()
    finally:
        episode.close()
