"""Tasks as an OpenEnv environment: an action is a call of a tool."""

from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
    ToolError,
    ToolErrorType,
)
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from toolmill_env.episode import Episode

_ERRORS = {
    "unknown_tool": ToolErrorType.TOOL_NOT_FOUND,
    "invalid_arguments": ToolErrorType.INVALID_ARGS,
    "miss": ToolErrorType.EXECUTION_ERROR,
    "too_many_calls": ToolErrorType.EXECUTION_ERROR,
}


class ToolObservation(Observation):
    """What a task asks for, and the names of the tools on offer: `list_tools` describes them."""

    task_id: str
    split: str
    request: str
    tool_names: list[str]


class EpisodeState(State):
    """misses: calls that nobody knows the answer of; a score with misses is a lower bound."""

    mode: str = ""
    task_id: str = ""
    split: str = ""
    misses: int = 0
    done: bool = False
    score: dict[str, Any] | None = None


class ToolEnvironment(Environment):
    """One episode. The reward comes with the step that ends it: `finish_task`, or one call too
    many; until then it is 0."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._episode = Episode()
        self._id: str | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> ToolObservation:
        row = self._episode.reset(task_id, seed=seed, split=split, index=index)
        self._id = episode_id
        return ToolObservation(
            task_id=row["id"],
            split=row["split"],
            request=row["request"],
            tool_names=[tool.name for tool in self._list_tools()],
            reward=0.0,
        )

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        if isinstance(action, ListToolsAction):
            return ListToolsObservation(tools=self._list_tools())
        if not isinstance(action, CallToolAction):
            raise TypeError(f"{type(action).__name__}: expected call_tool or list_tools")
        result = self._episode.call(action.tool_name, action.arguments)
        kind = _ERRORS.get(result.outcome)
        state = self._episode.describe()
        score = state.get("score")
        return CallToolObservation(
            tool_name=action.tool_name,
            result=None if kind else result.text,
            error=ToolError(error_type=kind, message=result.text) if kind else None,
            done=state["done"],
            reward=score["reward"] if score else 0.0,
            metadata={
                "outcome": result.outcome,
                "missed": result.missed,
                "misses": state["misses"],
                **({"score": score} if score else {}),
            },
        )

    @property
    def state(self) -> EpisodeState:
        facts = self._episode.describe()
        return EpisodeState(episode_id=self._id, step_count=facts.pop("calls"), **facts)

    def list_splits(self) -> list[str]:
        return sorted({row["split"] for row in self._episode.tasks.rows})

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        rows = self._episode.tasks.select(split)
        return [{"id": row["id"], "request": row["request"]} for row in rows]

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return self.list_tasks(split)[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]

    def get_metadata(self) -> EnvironmentMetadata:
        facts = self._episode.tasks.facts
        return EnvironmentMetadata(
            name="toolmill_env",
            description="Requests carried out with the tools of real MCP servers.",
            version=facts["release"][:12],
        )

    def close(self) -> None:
        self._episode.close()

    def _list_tools(self) -> list[Tool]:
        return [
            Tool(
                name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"]
            )
            for tool in self._episode.list_tools()
        ]
