"""A recording as one file: JSON lines under a first line that seals them.

{"format": "toolmill-replay", "version": 1, "lines": 3, "sha256": "…of all bytes after this line"}
{"contract": {…}}   {"answer": {…}, "key": "…"}   {"task": {…}}
"""

import json
from pathlib import Path
from typing import Any

from assets.outcomes.replay.recording import Answer, RecordedCall, Recording, ReplayTask
from warehouse.errors import UnusableInput
from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically

FORMAT, VERSION = "toolmill-replay", 1
MOST_BYTES = 256 << 20


class ReplayDamaged(UnusableInput):
    """A file that is no recording, or not the one that was written."""


def write_recording(path: Path, made: Recording) -> dict[str, Any]:
    """Writes the file; returns its first line. The same recording is the same bytes."""
    lines: list[dict[str, Any]] = [
        *({"contract": made.contracts[name]} for name in sorted(made.contracts)),
        *({"key": key, "answer": vars(made.answers[key])} for key in sorted(made.answers)),
        *({"task": _dump_task(made.tasks[name])} for name in sorted(made.tasks)),
    ]
    body = "".join(json.dumps(one, sort_keys=True) + "\n" for one in lines).encode()
    head = {"format": FORMAT, "version": VERSION, "lines": len(lines), "sha256": sha256(body)}
    write_atomically(path, json.dumps(head).encode() + b"\n" + body)
    return head


def read_recording(path: Path) -> Recording:
    """The recording in a file. Raises ReplayDamaged, one line: what is wrong, and the fix."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise ReplayDamaged(f"{path}: {error.strerror or error}; name a replay file") from None
    if size > MOST_BYTES:
        raise ReplayDamaged(f"{path}: {size:,} bytes, expected at most {MOST_BYTES:,}")
    first, _, body = data.partition(b"\n")
    try:
        head = json.loads(first)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ReplayDamaged(f"{path}: no replay file; `toolmill replay FILE --write` makes one")
    if head.get("version") != VERSION:
        problem = f"version {head.get('version')!r:.20}, expected {VERSION}"
        raise ReplayDamaged(
            f"{path}: {problem}; record it again, or use the toolmill that wrote it"
        )
    if sha256(body) != head.get("sha256"):
        raise ReplayDamaged(f"{path}: damaged, its bytes are not those that were sealed; copy it"
                            " again from where it was made")  # fmt: skip
    made = Recording()
    for number, line in enumerate(body.splitlines(), 2):
        try:
            _read_line(made, json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            problem = f"line {number} holds no contract, answer or task ({type(error).__name__})"
            raise ReplayDamaged(f"{path}: {problem}; record it again") from None
    return made


def _read_line(made: Recording, line: dict[str, Any]) -> None:
    if "contract" in line:
        one = line["contract"]
        made.contracts[str(one["contract_digest"])] = {
            "server_id": str(one["server_id"]),
            "tool": str(one["tool"]),
            "contract_digest": str(one["contract_digest"]),
            "contract": dict(one["contract"]),
        }
    elif "answer" in line:
        one = Answer(**line["answer"])
        if not all(isinstance(text, str) for text in (one.text, one.outcome, one.after)):
            raise TypeError(line["key"])
        made.answers[str(line["key"])] = one
    else:
        one = line["task"]
        calls = tuple(RecordedCall(**call) for call in one["calls"])
        states = {str(name): (str(two[0]), str(two[1])) for name, two in one["states"].items()}
        offered = tuple(map(str, one["contracts"]))
        if not {*offered, *(call.contract_digest for call in calls)} <= made.contracts.keys():
            raise KeyError("a task calls by a contract that is not in the file")
        named = str(one["id"]), str(one["request"])
        made.tasks[named[0]] = ReplayTask(*named, calls, states, offered)


def _dump_task(task: ReplayTask) -> dict[str, Any]:
    return {**vars(task), "calls": [vars(call) for call in task.calls]}
