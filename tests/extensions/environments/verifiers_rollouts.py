"""Plays an exported package with verifiers' own evaluation; prints what came of it.

Run by `test_frameworks.py` in an environment that has `verifiers`: PACKAGE KIND TASKS. The agent is
no model: it makes a task's reference calls, or the perturbed ones, over the tool server that
verifiers launches for the rollout. As a module it is also that agent's harness.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.harnesses.utils.mcp import mcp_client

__all__ = ["ScriptedHarness"]


class ScriptedHarness(vf.Harness[vf.HarnessConfig]):
    """Makes the calls that SCRIPT lists for a task: {task id: calls}."""

    SUPPORTS_MCP = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, **_):
        [url] = mcp_urls.values()
        script = json.loads(Path(os.environ["SCRIPT"]).read_text())
        async with mcp_client({"url": url}) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            for call in script[data.task_id]:
                assert call["name"] in names
                await client.call_tool(call["name"], call["arguments"])
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def main(package: str, kind: str, most: int) -> None:
    from importlib import import_module

    rows = import_module(package).Episode("replay").tasks.rows
    chosen = [row for row in rows if row[kind] is not None][:most]
    script = Path.cwd() / f"{kind}.json"
    script.write_text(json.dumps({row["id"]: row[kind] for row in chosen}))
    os.environ["SCRIPT"] = str(script)
    agent = {"harness": {"id": "verifiers_rollouts"}, "runtime": {"type": "subprocess"}}
    facts: dict[str, Any] = {"env": {"taskset": {"id": package}, "agent": agent}, "model": "none"}
    facts |= {"client": {"base_url": "http://127.0.0.1:9/v1"}, "push": False, "rich": None}
    facts |= {"select": {"include": {"ids": [row["id"] for row in chosen]}}, "max_concurrent": 2}
    facts |= {"output_dir": str(Path.cwd() / "outputs")}
    episodes = asyncio.run(run_eval(EvalConfig.model_validate(facts)))
    traces = [trace for episode in episodes for trace in episode.traces]
    rewards = {trace.task.data.task_id: trace.reward for trace in traces}
    misses = sum(trace.metrics["misses"] for trace in traces)
    errors = [error.message for each in (*episodes, *traces) for error in each.errors]
    print(json.dumps({"rewards": rewards, "misses": misses, "errors": errors}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
