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
    verified = session.verify(MCPHarnessAdapter().run_white_box(say, session, limits).messages)
    assert verified.done
    return float(verified.env_reward or 0.0)


def main(package: str, most: int) -> None:
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
        first, second = (env.ToolEnv(base_url=url).sync() for _ in range(2))
        scores: dict[str, list[float]] = {"reference": [], "perturbed": []}
        with first, second:
            for row in rows:
                for kind, values in scores.items():
                    if row[kind] is not None:
                        values.append(play(first, row, row[kind]))
            first.reset(task_id=rows[0]["id"])
            second.reset(task_id=rows[-1]["id"])
            over_mcp = first.call_tool("finish_task")
            states = [client.state().model_dump() for client in (first, second)]
        print(json.dumps({"scores": scores, "over_mcp": over_mcp, "states": states}))
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000)
