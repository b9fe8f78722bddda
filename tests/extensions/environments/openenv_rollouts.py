"""Plays an exported package with OpenEnv's own server, client and harness; prints what came of it.

Run by `test_frameworks.py` in an environment that has `openenv`: PACKAGE [TASKS].
"""

import contextlib
import importlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.harness.rollout import (
    HarnessRunLimits,
    MCPHarnessAdapter,
    ModelStepResult,
    StepEnvSessionAdapter,
)
from openenv.core.llm_client import LLMResponse, ToolCall


def play(client: Any, row: dict[str, Any], calls: list[dict[str, Any]]) -> float:
    """OpenEnv's harness with a model that makes these calls and then ends the task; its reward."""
    client.reset(task_id=row["id"])
    turns = [*calls, {"name": "finish_task", "arguments": {}}]
    answers = iter(enumerate(turns))

    def say(messages: Any, tools: Any, sampling: Any) -> ModelStepResult:
        number, call = next(answers)
        made = ToolCall(id=str(number), name=call["name"], args=call["arguments"])
        return ModelStepResult(LLMResponse(content="", tool_calls=[made]))

    session = StepEnvSessionAdapter(
        client,
        tool_specs=client.list_tools(use_cache=False),
        action_builder=lambda name, arguments: CallToolAction(tool_name=name, arguments=arguments),
        initial_messages_builder=lambda result, task: [{"role": "user", "content": row["request"]}],
        reset_kwargs={"task_id": row["id"]},
    )
    limits = HarnessRunLimits(max_turns=len(turns))
    played = MCPHarnessAdapter().run_white_box(say, session, limits)
    verified = session.verify(played.messages)
    assert verified.done
    return float(verified.env_reward or 0.0)


def catch(act: Any) -> str:
    try:
        act()
    except Exception as error:
        return str(error)
    return ""


def explore(connect: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Two clients, bad input, and tools over MCP."""
    first, second = connect(), connect()
    with first, second:
        begun = first.reset(task_id=rows[0]["id"])
        second.reset(task_id=rows[-1]["id"])
        miss = first.step(CallToolAction(**_miss(rows[0])))
        states = [client.state().model_dump() for client in (first, second)]
        tools = [tool.name for tool in first.list_tools(use_cache=False)]
        over_mcp = first.call_tool("finish_task")
        return {
            "request": begun.observation.request,
            "tools": tools,
            "miss": miss.observation.model_dump(mode="json"),
            "states": states,
            "over_mcp": over_mcp,
            "ended": catch(lambda: first.step(CallToolAction(tool_name="finish_task"))),
            "after_end": first.state().model_dump(),
            "unknown": catch(lambda: second.reset(task_id="nobody")),
            "malformed": catch(lambda: second.step(_Malformed())),
            "no_such_tool": second.step(
                CallToolAction(tool_name="nobody")
            ).observation.error.message,
        }


class _Malformed:
    """An action that is none."""

    def model_dump(self) -> dict[str, Any]:
        return {"type": "call_tool", "tool_name": 7, "arguments": "no object"}


def _miss(row: dict[str, Any]) -> dict[str, Any]:
    call = (row["perturbed"] or row["reference"])[-1]
    return {"tool_name": call["name"], "arguments": call["arguments"]}


def main(package: str, most: int) -> None:
    """Serves the package on loopback, and plays its first tasks."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", f"{package}.server.app", "--port", str(port)]
    server = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):  # its imports take long on a busy machine
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
                break
            assert server.poll() is None, "the server ended"
            time.sleep(0.5)
        else:
            raise TimeoutError("the server does not answer")
        env = importlib.import_module(package)
        rows = env.Episode("replay").tasks.rows[:most]
        client = env.ToolEnv(base_url=url).sync()
        scores: dict[str, list[float]] = {"reference": [], "perturbed": []}
        with client:
            for row in rows:
                for kind, values in scores.items():
                    if row[kind] is not None:
                        values.append(play(client, row, row[kind]))
        explored = explore(lambda: env.ToolEnv(base_url=url).sync(), rows)
        print(json.dumps({"scores": scores, **explored}))
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000)
