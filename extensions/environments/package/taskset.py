"""Tasks as a taskset of `verifiers`: a tool server for each rollout, scored by its end state."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, cast

import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, Tool
from pydantic import Field
from toolmill_env.episode import LIVE, REPLAY, Episode, EpisodeOver, read_tasks, score_calls
from verifiers.v1.harnesses.null import NullHarness

__all__ = ["ToolHarness", "ToolTaskset", "load_environment"]


class ToolData(vf.TaskData):
    """A task by its id, and how its calls are answered."""

    task_id: str
    split: str
    mode: str


class ToolState(vf.State):
    """What the calls of a rollout came to; `score` and `misses` are written by the tool server."""

    calls: list[dict[str, Any]] = Field(default_factory=list)
    misses: int = 0
    score: dict[str, Any] = Field(default_factory=dict)


class ToolServer(vf.Toolset[vf.ToolsetConfig, ToolState]):
    """The task's tools over MCP."""

    TOOL_PREFIX = None

    async def setup_task(self, task: ToolData) -> None:
        self._episode = Episode(task.mode)
        self._exit_stack.callback(self._episode.close)
        self._episode.reset(task.task_id)

    def register(self, mcp: MCPServer) -> None:
        server = cast(Any, mcp)  # its handlers call these two, so a task's own tools are served
        server.list_tools = self._with_state(self.list_tools)
        server.call_tool = self._with_state(self.call_tool)

    async def list_tools(self) -> list[Tool]:
        return [
            Tool(
                name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"]
            )
            for tool in self._episode.list_tools()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Any = None
    ) -> CallToolResult:
        try:
            result = self._episode.call(name, arguments)
        except EpisodeOver as error:
            return CallToolResult(
                content=[TextContent(type="text", text=str(error))], is_error=True
            )
        self.state.calls = [
            *self.state.calls,
            {"name": name, "arguments": arguments, "outcome": result.outcome},
        ]
        self.state.misses = self._episode.describe()["misses"]
        self.state.score = asdict(self._episode.score())
        return CallToolResult(
            content=[TextContent(type="text", text=result.text)], is_error=not result.valid
        )


class ToolTaskConfig(vf.TaskConfig):
    """Where a rollout's tool server runs."""

    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class ToolTask(vf.Task[ToolData, ToolState, ToolTaskConfig]):
    """Its reward is 1 where every world ends as its own calls end it and each call was of use."""

    @classmethod
    def toolsets(cls, config: ToolTaskConfig) -> list[vf.Toolset]:
        return [ToolServer(config.tools)]

    @vf.reward(weight=1.0)
    async def end_state(self, trace: vf.Trace) -> float:
        return float(trace.state.score.get("reward", 0.0))

    @vf.metric
    async def misses(self, trace: vf.Trace) -> float:
        return float(trace.state.misses)

    @vf.metric
    async def calls(self, trace: vf.Trace) -> float:
        return float(len(trace.state.calls))

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        row = read_tasks().choose(self.data.task_id)
        return score_calls(row["id"], row["reference"], self.data.mode).reward == 1


class ToolTasksetConfig(vf.TasksetConfig):
    """mode: replay, or live on a machine with toolmill. split: None for every split."""

    mode: str = REPLAY
    split: str | None = None
    task: ToolTaskConfig = ToolTaskConfig()


class ToolTaskset(vf.Taskset[ToolTask, ToolTasksetConfig]):
    """The tasks of this package, in the order of `tasks.jsonl`."""

    def load(self) -> Iterable[ToolTask]:
        if self.config.mode not in (REPLAY, LIVE):
            raise ValueError(f"mode {self.config.mode!r}: expected {REPLAY} or {LIVE}")
        for row in read_tasks().select(self.config.split):
            data = ToolData(
                id=row["id"],
                task_id=row["id"],
                prompt=row["request"],
                split=row["split"],
                mode=self.config.mode,
            )
            yield ToolTask(data, self.config.task)


class ToolHarness(NullHarness):
    """A chat with the task's tools and no others."""


def load_environment(mode: str = REPLAY, split: str | None = None) -> vf.Env:
    """The environment with one agent, on this machine."""
    config = {
        "taskset": {"id": "toolmill_env", "mode": mode, "split": split},
        "agent": {"runtime": {"type": "subprocess"}},
    }
    return vf.load_environment(vf.resolve_env_config(config))


if __name__ == "__main__":
    ToolServer.run()
