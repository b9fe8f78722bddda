"""Servers to be called: written on the spot, launched in the real sandbox, or on loopback."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from assets.servers.calls import connection
from assets.servers.calls.caller import ToolCaller
from assets.servers.calls.result import CallLimits, CallResult
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.recipes.install import InstalledArtifact
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.untrusted_server import CONVERSATION, POLICY, PREAMBLE, require_sandbox

NPM = LaunchRecipe(server_id="npm:x", ecosystem="npm", name="x", version="1", integrity="sha512-x")
SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "how": {"type": "string"}},
    "required": ["x"],
}
CONTRACT = {"name": "do", "inputSchema": SCHEMA}
OTHER = {"name": "rest", "inputSchema": {"type": "object"}}
# A sound server that another test starves of both cores is not one that hangs.
PATIENT = replace(CONVERSATION, start_s=20.0, idle_s=3.0, list_s=5.0)
LIMITS = CallLimits(sessions=3, idle_s=60.0, launch_s=30.0, ping_s=1.0, message_mb=4)

# `calls(do)` answers everything but tools/call, which `do(message, x)` answers.
HARNESS = """
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}, "how": {"type": "string"}},
          "required": ["x"]}
TOOLS = [tool("do", inputSchema=SCHEMA), tool("rest")]

def say(m, text, **more):
    answer(m["id"], {"content": [{"type": "text", "text": str(text)}], **more})

def calls(do, tools=TOOLS):
    while True:
        m = read()
        method = m.get("method")
        if method == "initialize":
            welcome(m)
        elif method == "tools/list":
            answer(m["id"], {"tools": tools() if callable(tools) else tools})
        elif method == "tools/call":
            do(m, m["params"]["arguments"].get("x"))
        elif method == "ping":
            answer(m["id"], {})
"""


@dataclass
class LaunchedServer:
    """A caller of one server. call: of `do` with x, or of another tool."""

    caller: ToolCaller
    server_id: str

    async def call(
        self,
        x: Any = 1,
        *,
        tool: str = "do",
        contract: Mapping[str, Any] | None = None,
        timeout_s: float = 10.0,
        on_progress: Any = None,
        **more: Any,
    ) -> CallResult:
        by = contract or (CONTRACT if tool == "do" else {**OTHER, "name": tool})
        arguments = {"x": x, **more} if tool == "do" else more
        options = {"timeout_s": timeout_s, "on_progress": on_progress}
        return await self.caller.call(self.server_id, tool, by, arguments, **options)


class Bench:
    """Makes worlds: each server's source lies where its artefact would."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._trees = folder, {}
        monkeypatch.setattr(connection, "ensure_artifact", self._artifact)

    def _artifact(self, recipe: LaunchRecipe, **_: Any) -> InstalledArtifact:
        argv = (str(find_toolchain().python), "/srv/server/main.py")
        return InstalledArtifact(self._trees[recipe.name], argv, {}, (), "locked", 1.0)

    def recipe(self, source: str, name: str = "x", **facts: Any) -> LaunchRecipe:
        require_sandbox()
        tree = self.folder / name
        tree.mkdir()
        (tree / "main.py").write_text(PREAMBLE + HARNESS + source)
        for path in (tree, self.folder):
            path.chmod(0o755)
        self._trees[name] = tree
        return NPM.model_copy(update={"server_id": f"npm:{name}", "name": name, **facts})

    @asynccontextmanager
    async def launch(
        self,
        source: str,
        *,
        limits: CallLimits = LIMITS,
        policy: DeployPolicy | None = None,
        recipe: Mapping[str, Any] | None = None,
        **sandbox: Any,
    ) -> AsyncIterator[LaunchedServer]:
        async with self._call(self.recipe(source, **(recipe or {})), policy, limits, sandbox) as it:
            yield it

    async def call(self, source: str, *x: Any, **facts: Any) -> CallResult:
        """One call of a server of this source."""
        how = {name: facts.pop(name) for name in ("limits", "policy", "recipe") if name in facts}
        async with self.launch(source, **how) as running:
            return await running.call(*x, **facts)

    @asynccontextmanager
    async def _call(
        self,
        made: LaunchRecipe,
        policy: DeployPolicy | None,
        limits: CallLimits,
        sandbox: Mapping[str, Any],
    ) -> AsyncIterator[LaunchedServer]:
        policy = policy or DeployPolicy(self.folder, POLICY, PATIENT)
        policy = replace(policy, sandbox=replace(policy.sandbox, **sandbox))
        caller = ToolCaller({made.server_id: dump_recipe(made)}, policy, limits)
        try:
            yield LaunchedServer(caller, made.server_id)
        finally:
            await caller.close()


@asynccontextmanager
async def open_remote(
    url: str, *, transport: Any = "auto", limits: CallLimits = LIMITS, **facts: Any
) -> AsyncIterator[LaunchedServer]:
    """A caller of a server at an address of loopback."""
    policy = facts.pop("policy", None) or DeployPolicy(Path("/nonexistent"))
    remote = RemotePolicy(allow_loopback=True, wall_s=40)
    policy = replace(policy, remote=remote, conversation=PATIENT)
    facts |= {"name": url, "url": url, "transport": transport}
    launch_recipe = LaunchRecipe(server_id=f"remote:{url}", ecosystem="remote", **facts)
    caller = ToolCaller({launch_recipe.server_id: dump_recipe(launch_recipe)}, policy, limits)
    try:
        yield LaunchedServer(caller, launch_recipe.server_id)
    finally:
        await caller.close()


def read_text(result: CallResult) -> str:
    """The text of an answer."""
    return "\n".join(item.get("text", "") for item in result.content)
