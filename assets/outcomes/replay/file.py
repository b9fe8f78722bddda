"""A recording as one file: JSON lines under a first line that seals them.

{"format": "toolmill-replay", "version": 1, "lines": 3, "sha256": "…of all bytes after this line"}
{"contract": {…}}   {"answer": {…}, "key": "…"}   {"task": {…}}
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

from assets.outcomes.replay.recording import Answer, RecordedCall, Recording, ReplayTask
from warehouse.errors import UnusableInput
from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically
from warehouse.storage.untrusted_files import read_file

FORMAT, VERSION = "toolmill-replay", 1
MOST_BYTES = 256 << 20
_LONGEST_HEAD = 4096  # bytes


class ReplayDamaged(UnusableInput):
    """A file that is no recording, or not the one that was written."""


def write_recording(path: Path, made: Recording) -> dict[str, Any]:
    """Writes the file; returns its first line. The same recording is the same bytes."""
    lines: list[dict[str, Any]] = [
        *({"contract": made.contracts[name]} for name in sorted(made.contracts)),
        *({"key": key, "answer": vars(made.answers[key])} for key in sorted(made.answers)),
        *({"task": _dump_task(made.tasks[name])} for name in sorted(made.tasks)),
    ]
    body = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode()
    head = {"format": FORMAT, "version": VERSION, "lines": len(lines), "sha256": sha256(body)}
    write_atomically(path, json.dumps(head).encode() + b"\n" + body)
    return head


def read_recording(path: Path) -> Recording:
    """The recording in a file. Raises ReplayDamaged, one line: what is wrong, and the fix."""
    real = Path(os.path.realpath(path))
    try:
        data = read_file(real.parent, real.name, MOST_BYTES)
    except OSError as error:
        more = f", expected at most {MOST_BYTES:,}" if error.errno == errno.EFBIG else ""
        problem = f"{error.strerror or error}{more}; name a replay file"
        raise ReplayDamaged(f"{path}: {problem}") from None
    first, _, body = data.partition(b"\n")
    head = _parse_head(first)
    if head is None:
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


def is_recording(path: Path) -> bool:
    """Whether a file begins as a recording does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _parse_head(file.readline(_LONGEST_HEAD)) is not None


def _parse_head(line: bytes) -> dict[str, Any] | None:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) and head.get("format") == FORMAT else None


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
        texts, counts = (one.text, one.outcome, one.after), (one.seen, one.differing)
        if not all(isinstance(text, str) for text in texts) or {*map(type, counts)} != {int}:
            raise TypeError(line["key"])
        made.answers[str(line["key"])] = one
    else:
        one = line["task"]
        calls = tuple(RecordedCall(**call) for call in one["calls"])
        if not all(isinstance(call.arguments, dict) for call in calls):
            raise TypeError(one["id"])
        states = {str(name): (str(two[0]), str(two[1])) for name, two in one["states"].items()}
        offered = tuple(map(str, one["contracts"]))
        if not {*offered, *(call.contract_digest for call in calls)} <= made.contracts.keys():
            raise KeyError("a task calls by a contract that is not in the file")
        named = str(one["id"]), str(one["request"])
        made.tasks[named[0]] = ReplayTask(*named, calls, states, offered)


def _dump_task(task: ReplayTask) -> dict[str, Any]:
    return {**vars(task), "calls": [vars(call) for call in task.calls]}
