"""A recording: what calls were answered in which states, and the tasks that they belong to."""

import errno
import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.contracts.validate import validate_call
from assets.outcomes.execution import make_call_key
from assets.outcomes.outcome import PROTOCOL_ERROR, REFUSED, TIMEOUT, TRUNCATED
from assets.outcomes.trajectory import KEPT, TrajectoryStep
from extensions.environments.replay_environment import (
    RecordedAnswer,
    RecordedAnswers,
    RecordedCall,
    ReplayTask,
)
from warehouse.errors import UnusableInput
from warehouse.json_types import Row
from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically
from warehouse.storage.untrusted_files import read_file

_NO_ANSWER = (REFUSED, TRUNCATED, TIMEOUT, PROTOCOL_ERROR)


class ReplayRecording(RecordedAnswers):
    """A recording of this home, or of a file."""

    def find_flaws(self, contract: Mapping[str, Any], arguments: Any) -> list[str]:
        return [f"{flaw.path}: {flaw.message}" for flaw in validate_call(contract, arguments)]

    def make_key(self, contract_digest: str, arguments: Mapping[str, Any], state: str) -> str:
        """Names a call; arguments without a canonical form have a key that no recording holds."""
        try:
            return make_call_key(contract_digest, dict(arguments), state)
        except (ValueError, TypeError, RecursionError, OverflowError):
            return ""


def record_trajectories(rows: Sequence[Row]) -> ReplayRecording:
    """Every call of TRAJECTORIES that was answered in full, and the tasks of those kept."""
    replay_recording = ReplayRecording()
    answers: dict[str, Counter[RecordedAnswer]] = defaultdict(Counter)
    for row in sorted(rows, key=lambda row: row["trajectory_id"]):
        steps = [TrajectoryStep(**step) for step in json.loads(row["steps"])]
        for item in json.loads(row["contracts"]):
            contract = json.loads(item["contract"])
            replay_recording.contracts[item["contract_digest"]] = {**item, "contract": contract}
        for step in steps:
            if step.outcome in _NO_ANSWER:  # a server's words that are not all here are no answer
                continue
            key = replay_recording.make_key(step.contract_digest, step.arguments, step.before)
            answers[key][RecordedAnswer(step.answer, step.outcome, step.after)] += 1
        if row["status"] == KEPT and not row["recovers"]:
            replay_recording.tasks[row["trajectory_id"]] = _make_task(row, steps)
    replay_recording.answers = {
        key: counts.most_common(1)[0][0] for key, counts in sorted(answers.items()) if key
    }
    return replay_recording


def _make_task(row: Row, steps: Sequence[TrajectoryStep]) -> ReplayTask:
    states: dict[str, tuple[str, str]] = {}
    for step in steps:
        first = states.get(step.server_id, (step.before, ""))[0]
        states[step.server_id] = (first, step.after)
    calls = [
        RecordedCall(step.server_id, step.tool, step.contract_digest, step.arguments)
        for step in steps
        if not step.wrong
    ]
    offered = tuple(item["contract_digest"] for item in json.loads(row["contracts"]))
    return ReplayTask(row["trajectory_id"], row["instruction"], tuple(calls), states, offered)


FORMAT, VERSION = "toolmill-replay", 2
MOST_BYTES = 256 << 20


class ReplayDamaged(UnusableInput):
    """A file that is no recording, or not the one that was written."""


def write_recording(path: Path, recording: ReplayRecording) -> dict[str, Any]:
    """Writes the file; returns its first line. The same recording is the same bytes."""
    lines: list[dict[str, Any]] = [
        *({"contract": recording.contracts[name]} for name in sorted(recording.contracts)),
        *(
            {"key": key, "answer": vars(recording.answers[key])}
            for key in sorted(recording.answers)
        ),
        *(
            {"task": {**vars(task), "calls": [vars(call) for call in task.calls]}}
            for _, task in sorted(recording.tasks.items())
        ),
    ]
    body = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode()
    head = {"format": FORMAT, "version": VERSION, "lines": len(lines), "sha256": sha256(body)}
    write_atomically(path, json.dumps(head).encode() + b"\n" + body)
    return head


def read_recording(path: Path) -> ReplayRecording:
    """The recording in a file. Raises ReplayDamaged, one line: what is wrong, and the fix."""
    real = Path(os.path.realpath(path))
    try:
        data = read_file(real.parent, real.name, MOST_BYTES)
    except OSError as error:
        more = f", expected at most {MOST_BYTES:,}" if error.errno == errno.EFBIG else ""
        problem = f"{error.strerror or error}{more}; name a replay file"
        raise ReplayDamaged(f"{path}: {problem}") from None
    first, _, body = data.partition(b"\n")
    try:
        head = json.loads(first)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ReplayDamaged(f"{path}: no replay file; `toolmill env export` writes one")
    if head.get("version") != VERSION:
        problem = f"version {head.get('version')!r:.20}, expected {VERSION}"
        raise ReplayDamaged(
            f"{path}: {problem}; record it again, or use the toolmill that wrote it"
        )
    if sha256(body) != head.get("sha256"):
        raise ReplayDamaged(f"{path}: damaged, its bytes are not those that were sealed; copy it"
                            " again from where it was made")  # fmt: skip
    replay_recording = ReplayRecording()
    for number, line in enumerate(body.splitlines(), 2):
        try:
            replay_recording.read_line(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            problem = f"line {number} holds no contract, answer or task ({type(error).__name__})"
            raise ReplayDamaged(f"{path}: {problem}; record it again") from None
    return replay_recording
