"""Live tasks for an exported environment: their servers in their worlds, asked line by line.

{"reset": task id}                              -> {"servers": […]}
{"call": contract digest, "arguments": {…}}     -> {text, outcome, after: digest of the state}

A request that cannot be met is answered by {"error": …}; the next one may be.
"""

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from assets.outcomes.environment import PLAIN, ServerInWorld, open_server
from assets.outcomes.execution import ToolCall, watch_call
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.worlds.tree import WorldFailed, WorldFileError
from extensions.environments.export import REPLAY, TASKS
from extensions.environments.recording import read_recording
from warehouse.user_files import read_json_lines


class WorldGone(ValueError):
    """A task whose world or server is not to be had in this home."""


class LiveTasks:
    """The tasks of an exported folder, one at a time. recipes: server -> how it is launched."""

    def __init__(
        self, folder: Path, executor: ExecutionSetup, recipes: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._rows = {row["id"]: row for _, row in read_json_lines(folder / TASKS)}
        self._contracts = read_recording(folder / REPLAY).contracts
        self._executor, self._recipes = executor, recipes
        self._worlds = {world.name: world for world in (PLAIN, *executor.worlds)}
        self._open, self._servers = AsyncExitStack(), dict[str, ServerInWorld]()

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What one line is answered."""
        try:
            if "reset" in message:
                return await self._reset(str(message["reset"]))
            return await self._call(str(message.get("call")), message.get("arguments"))
        except (WorldGone, WorldFailed, WorldFileError) as error:
            return {"error": str(error)}

    async def close(self) -> None:
        """Ends the servers, and removes their worlds."""
        self._servers.clear()
        await self._open.aclose()

    async def _reset(self, task_id: str) -> dict[str, Any]:
        await self.close()
        self._open = AsyncExitStack()
        if task_id not in self._rows:
            raise WorldGone(f"no task {task_id[:60]!r} in this folder")
        for number, place in enumerate(self._rows[task_id]["worlds"]):
            self._servers[place["server_id"]] = await self._launch(place, number)
        return {"servers": sorted(self._servers)}

    async def _launch(self, place: Mapping[str, Any], number: int) -> ServerInWorld:
        name, server_id = place["world"], place["server_id"]
        if name not in self._worlds:
            raise WorldGone(
                f"world {name!r} is gone from this home (known: {', '.join(sorted(self._worlds))});"
                " add its file to `worlds.paths`, or export the taskset again"
            )
        if server_id not in self._recipes:
            raise WorldGone(
                f"world {name!r}: its server {server_id} is not in this home; set TOOLMILL_HOME to"
                " one that launched it, or export the taskset again"
            )
        folder = f"env-{os.getpid()}-{number}"
        opened = await self._open.enter_async_context(
            open_server(
                server_id,
                self._recipes[server_id],
                self._worlds[name],
                place["seed"],
                self._executor.policy,
                folder,
            )
        )
        if opened.first != place["before"]:
            raise WorldGone(
                f"world {name!r} does not begin as it did when the taskset was exported: its file"
                " changed; export the taskset again"
            )
        return opened

    async def _call(self, contract_digest: str, arguments: Any) -> dict[str, Any]:
        entry = self._contracts.get(contract_digest)
        opened = self._servers.get(entry["server_id"]) if entry else None
        if entry is None or opened is None or not isinstance(arguments, dict):
            server = entry["server_id"] if entry else contract_digest[:40]
            return {"error": f"{server} is not one of the task's servers: it is not launched"}
        contract = entry["contract"]
        call = ToolCall(entry["server_id"], contract["name"], contract, contract_digest, arguments)
        watched = await watch_call(
            opened.caller,
            call,
            opened.world,
            timeout_s=self._executor.settings.timeout_s,
            owner=opened.owner,
        )
        done = watched.execution
        text = done.text or (json.dumps(done.structured) if done.structured is not None else "")
        return {"text": text or done.hint or "", "outcome": done.outcome, "after": done.after}


def answer_lines(tasks: LiveTasks, lines: Iterable[str]) -> Iterator[str]:
    """An answer for each line, in order; the servers end with the lines."""
    with asyncio.Runner() as runner:
        try:
            for line in lines:
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    message = None
                if isinstance(message, dict):
                    reply = runner.run(tasks.answer(message))
                else:
                    reply = {"error": "expected one JSON object a line"}
                yield json.dumps(reply)
        finally:
            runner.run(tasks.close())
