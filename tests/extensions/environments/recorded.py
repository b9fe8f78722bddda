"""Rows of trajectories as a real run would have written them."""

from typing import Any

from assets.contracts.canonical import contract_digest
from assets.outcomes.trajectory import TaskTrajectory, TrajectoryStep, WorldStretch
from extensions.environments.recording import ReplayRecording, record_trajectories
from tests.synthesis.contracts import TEXT, make_tool

SERVER = "npm:files"
PATH = {"path": TEXT, "content": TEXT}
CONTRACTS = {name: make_tool(name, f"Does {name}", PATH, "path") for name in ("read", "write")}
READ = {"name": "read", "arguments": {"path": "/a"}}
WRITE = {"name": "write", "arguments": {"path": "/b", "content": "x"}}


def step(
    tool: str, inputs: dict[str, Any], output: str, before: str, after: str, **more: Any
) -> TrajectoryStep:
    facts = {"outcome": "useful", **more}
    return TrajectoryStep(SERVER, tool, contract_digest(CONTRACTS[tool]), inputs, output,
                before=before, after=after, **facts)  # fmt: skip


def row(
    *steps: TrajectoryStep, request: str = "Read /a, then write x into /b.", why: str | None = None
):
    offered = {contract_digest(item): (SERVER, item) for item in CONTRACTS.values()}
    places = (WorldStretch("small", "task", 1, steps[0].before, steps[-1].after),)
    return TaskTrajectory(request, steps, "Done.", places, offered, why).make_row()


def rows(output: str = "first") -> list[dict[str, Any]]:
    """A task that reads and writes, one that reads alone, one with a wrong call, a dropped one."""
    reads = step("read", READ["arguments"], output, "s1", "s1")
    writes = step("write", WRITE["arguments"], "written", "s1", "s2")
    wrong = step("read", {"path": "/z"}, "no such file", "s1", "s1",
                 outcome="tool_error", wrong=True)  # fmt: skip
    odd = step("write", {"path": "/q", "content": "y"}, "written", "s1", "s9")
    return [
        row(reads, writes),
        row(reads, request="What does /a say?"),
        row(wrong, reads, request="What does /a say, after all?"),
        row(odd, request="Write y into /r.", why="the end state is not the one asked for"),
    ]


def recording() -> ReplayRecording:
    return record_trajectories(rows())


def find_task(built: ReplayRecording, request: str) -> str:
    [name] = [name for name, task in built.tasks.items() if task.request == request]
    return name
