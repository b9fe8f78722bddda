"""Reading databases and workbooks that a server wrote: by `file_reader.py`, in the sandbox."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.worlds import file_reader
from assets.servers.sandbox.process import preflight, start
from assets.servers.sandbox.spec import (
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
)
from assets.servers.sandbox.toolchain import find_toolchain
from assets.servers.sandbox.watchdog import SandboxWatchdog
from warehouse.storage.digest import digest, sha256

# Processor time is what ends a reading: a busy machine makes no file unreadable.
_LIMITS = SandboxPolicy(memory_mb=176, processes=8, wall_s=120.0, cpu_s=20)
_MOST_OUTPUT = 16 << 20
_STATES = "/srv/states"
_KEPT = 32  # answers: most reads are of a state that was read before
_answers: dict[str, list[dict[str, Any]]] = {}


def read_contained(kind: str, states: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each state {"facts"}, or {"why"} it cannot be read. states: the bytes of a file and of
    what lies beside it, by suffix; anything else than bytes is left out."""
    if not states:
        return []
    files = [
        {suffix: data for suffix, data in state.items() if isinstance(data, bytes)}
        for state in states
    ]
    digests = [{suffix: sha256(data) for suffix, data in state.items()} for state in files]
    key = digest([kind, digests])
    if key in _answers:
        return _answers[key]
    # The answers, up to the one that ended the program.
    with TemporaryDirectory(prefix="toolmill-states-") as place:
        folder = Path(place)
        for number, state in enumerate(files):
            for suffix, data in state.items():
                path = folder / f"{number}{suffix}"
                path.write_bytes(data)
                path.chmod(0o644)
        folder.chmod(0o755)  # the sandbox is another user
        toolchain, program = find_toolchain(), Path(file_reader.__file__).read_text()
        mounts = (*map(SandboxMount.same, toolchain.binds), SandboxMount(folder, _STATES))
        argv = (str(toolchain.python), "-I", "-c", program, kind, _STATES)
        output = _run(SandboxLaunch(argv, mounts=mounts))
    answers: list[dict[str, Any]] = []
    for line in output.splitlines():
        with suppress(ValueError):
            answers.append(json.loads(line))
    answers = answers[: len(files)]
    if len(answers) == len(files):
        while len(_answers) >= _KEPT:
            _answers.pop(next(iter(_answers)), None)
        _answers[key] = answers
    missing = f"reading it takes more than {_LIMITS.memory_mb} MB, {_LIMITS.cpu_s} s"
    missing += f" or {_MOST_OUTPUT >> 20} MB of facts"
    return [*answers, *[{"why": missing}] * (len(files) - len(answers))]


def describe_unreadable(data: bytes, why: str) -> dict[str, str]:
    """The fact that stands for a file that cannot be read."""
    return {"is": "unreadable", "sha256": sha256(data), "why": why}


def _run(launch: SandboxLaunch) -> bytes:
    """Its output. A host that cannot sandbox runs it within the kernel's limits alone."""
    policy = _LIMITS
    try:
        preflight(policy)
    except SandboxUnavailable:
        policy = replace(policy, backend="none")
    with start(launch, policy) as jailed, SandboxWatchdog(jailed, policy):
        assert jailed.process.stdout
        return jailed.process.stdout.read(_MOST_OUTPUT)
