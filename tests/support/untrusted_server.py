"""Untrusted servers: little MCP servers written on the spot, probed in the real sandbox.

Each is Python source that may use `serve(tools)`, `read()`, `send(message)` and `answer(id,
result)`. Escape attempts report what worked as names of tools.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.servers.deploy import deploy
from assets.servers.probe.probe import ProbeResult, probe
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.install import InstalledArtifact
from assets.servers.sandbox.process import SandboxUnavailable, preflight
from assets.servers.sandbox.spec import SandboxLaunch, SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain

_SMALL_MB = {"memory_mb": 192, "stdout_mb": 8, "message_mb": 4, "tmp_mb": 16, "file_mb": 8}
POLICY = SandboxPolicy(processes=48, wall_s=20.0, allow_loopback=True, **_SMALL_MB)
_MOST: Any = {"max_pages": 20, "max_tools": 1000}
CONVERSATION = ProbePolicy(start_s=4.0, idle_s=0.7, list_s=1.5, extras_s=1.0, **_MOST)

PREAMBLE = '''
import json, os, sys, time

def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def send(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def answer(id, result):
    send({"jsonrpc": "2.0", "id": id, "result": result})

def notify(method, **params):
    send({"jsonrpc": "2.0", "method": "notifications/" + method, "params": params})

def ask(id, method, **params):
    send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

def fail(message, code, words):
    send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words}})

def welcome(message, version="2025-06-18"):
    info = {"name": "untrusted", "version": "1"}
    answer(message["id"], {"protocolVersion": version, "capabilities": {"tools": {}},
                           "serverInfo": info})

def tool(name, **more):
    return {"name": name, "inputSchema": {"type": "object"}, **more}

def serve(tools, before_list=lambda: None):
    while True:
        message = read()
        if message.get("method") == "initialize":
            welcome(message)
        elif message.get("method") == "tools/list":
            before_list()
            answer(message["id"], {"tools": tools})

def attempt(name, action):
    """A tool named after an escape that worked."""
    try:
        action()
    except BaseException:
        return []
    return [tool("escaped_" + name)]
'''


def require_sandbox() -> None:
    """Skips, with the reason, where this host cannot sandbox."""
    try:
        preflight()
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def write_launch(folder: Path, source: str, **env: str) -> SandboxLaunch:
    (folder / "untrusted.py").write_text(PREAMBLE + source)
    folder.chmod(0o755)  # pytest's folders are their owner's alone; the sandbox is another user
    toolchain = find_toolchain()
    mounts = [SandboxMount.same(path) for path in toolchain.binds]
    argv = (str(toolchain.python), "/srv/server/untrusted.py")
    return SandboxLaunch(argv, env, (*mounts, SandboxMount(folder, "/srv/server")))


def install_source(folder: Path, patch: pytest.MonkeyPatch, source: str = "") -> Path:
    """Makes `deploy` find a server of this source instead of fetching one; returns its folder."""
    require_sandbox()
    tree = folder / "tree"
    tree.mkdir()
    (tree / "main.py").write_text(PREAMBLE + source)
    for path in (tree, folder):
        path.chmod(0o755)
    argv = (str(find_toolchain().python), "/srv/server/main.py")
    artifact = InstalledArtifact(tree, argv, {}, (), "locked", 1.0)
    patch.setattr(deploy, "ensure_artifact", lambda *_, **__: artifact)
    return tree


def probe_source(folder: Path, source: str, clocks: Any = None, **limits: Any) -> ProbeResult:
    """Probes an untrusted server; `clocks` override fields of ProbePolicy, `limits` of
    SandboxPolicy."""
    require_sandbox()
    conversation = replace(CONVERSATION, **(clocks or {}))
    return probe(write_launch(folder, source), replace(POLICY, **limits), conversation)


def tool_names(result: ProbeResult) -> list[str]:
    return [str(tool.get("name")) for tool in result.tools]
