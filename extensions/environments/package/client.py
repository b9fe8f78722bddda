"""Client of the OpenEnv server: reset, step and state by WebSocket, tools over MCP."""

from typing import Any

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.env_server.types import State
from openenv.core.mcp_client import MCPToolClient

__all__ = ["CallToolAction", "ToolEnv"]


class ToolEnv(MCPToolClient):
    """Each client has a session of its own on the server.

    `env.reset(task_id=…)`, then `env.step(CallToolAction(tool_name=…, arguments={…}))` until it is
    `done`; the tool `finish_task` ends a task.
    """

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
