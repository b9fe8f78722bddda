"""Servers to be called: written on the spot, launched in the real sandbox, or on loopback."""

from collections.abc import AsyncIterator
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
    """A caller of one server."""

    caller: ToolCaller
    server_id: str

    async def call(self, x: Any = 1, *, contract: Any = CONTRACT, **more: Any) -> CallResult:
        named = {"timeout_s": 10.0, **more}
        options = {name: named.pop(name) for name in ("timeout_s", "on_progress") if name in named}
        arguments = {"x": x, **named}
        return await self.caller.call(self.server_id, "do", contract, arguments, **options)


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
        tree.mkdir(parents=True)
        (tree / "main.py").write_text(PREAMBLE + HARNESS + source)
        for path in (tree, self.folder):
            path.chmod(0o755)
        self._trees[name] = tree
        return NPM.model_copy(update={"server_id": f"npm:{name}", "name": name, **facts})

    @asynccontextmanager
    async def launch(self, source: str, **how: Any) -> AsyncIterator[LaunchedServer]:
        """how: limits, policy, or facts of the recipe; or fields of the sandbox's policy."""
        made = self.recipe(source, **how.pop("recipe", {}))
        policy = how.pop("policy", None) or DeployPolicy(self.folder, POLICY, PATIENT)
        limits = how.pop("limits", LIMITS)
        policy = replace(policy, sandbox=replace(policy.sandbox, **how))
        async with _call_one(made, policy, limits) as launched:
            yield launched

    async def call(self, source: str, *x: Any, **facts: Any) -> CallResult:
        how = {name: facts.pop(name) for name in ("limits", "policy", "recipe") if name in facts}
        async with self.launch(source, **how) as running:
            return await running.call(*x, **facts)


@asynccontextmanager
async def _call_one(made: LaunchRecipe, *policies: Any) -> AsyncIterator[LaunchedServer]:
    caller = ToolCaller({made.server_id: dump_recipe(made)}, *policies)
    try:
        yield LaunchedServer(caller, made.server_id)
    finally:
        await caller.close()


@asynccontextmanager
async def open_remote(url: str, **facts: Any) -> AsyncIterator[LaunchedServer]:
    """A caller of a server at an address of loopback. facts: of its recipe, or policy."""
    policy = facts.pop("policy", None) or DeployPolicy(Path("/nonexistent"))
    remote = RemotePolicy(allow_loopback=True, wall_s=40)
    policy = replace(policy, remote=remote, conversation=PATIENT)
    facts = {"name": url, "url": url, "transport": "auto", **facts}
    made = LaunchRecipe(server_id=f"remote:{url}", ecosystem="remote", **facts)
    async with _call_one(made, policy, LIMITS) as launched:
        yield launched


def read_text(result: CallResult) -> str:
    """The text of an answer."""
    return "\n".join(item.get("text", "") for item in result.content)
