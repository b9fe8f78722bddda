"""The client that the protocol's conformance suite runs: our login, probe and calls of its server.

python -m tests.servers.conformance_client URL
"""

import json
import os
import sys
import tempfile
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from assets.servers.deploy.policy import DeployPolicy
from assets.servers.oauth_login import OAuthAccounts, OAuthChoice, log_in
from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from tests.serving.calling import PATIENT, open_remote

VALUES = {"integer": 5, "number": 5, "string": "text", "boolean": True, "object": {}, "array": []}


def main(url: str, scenario: str, facts: dict[str, Any]) -> None:
    home = Path(tempfile.mkdtemp())
    accounts, server = OAuthAccounts(home), f"remote:{url}"
    if scenario.startswith("auth/"):
        os.environ["CLIENT_SECRET"] = str(facts.get("client_secret", ""))
        secret = "env:CLIENT_SECRET" if facts.get("client_secret") else None
        registered = OAuthChoice(client_id=facts.get("client_id"), client_secret=secret)
        print(log_in(url, server, home, show=consent, timeout_s=20, choice=registered))
    limits = replace(PATIENT, start_s=30.0, list_s=15.0)
    policy = RemotePolicy(allow_loopback=True, wall_s=50)
    auth = accounts.auth(server, url)
    probed = probe_remote(url, transport="auto", limits=limits, policy=policy, auth=auth)
    print(probed.status, probed.error_kind, probed.hint, [tool["name"] for tool in probed.tools])
    tools = {tool["name"]: tool for tool in probed.tools}
    calls = facts.get("toolCalls") or [
        {"name": name, "arguments": fill_in(tool, probed.tools[0]["inputSchema"])}
        for name, tool in tools.items()
    ]
    anyio.run(call_all, url, DeployPolicy(home, accounts=accounts), tools, calls)


def consent(url: str) -> None:
    """A person who consents at once: their browser follows the address to the callback."""
    follow = partial(httpx2.get, url, follow_redirects=True, timeout=20)
    threading.Thread(target=follow, daemon=True).start()


def fill_in(tool: dict[str, Any], first_schema: dict[str, Any]) -> dict[str, Any]:
    """first_schema: for a tool that asks what was read of it."""
    schema = tool["inputSchema"]
    names = {name: schema["properties"][name].get("type") for name in schema.get("required", ())}
    return {
        name: first_schema if name == "schema" else VALUES.get(kind, {})
        for name, kind in names.items()
    }


async def call_all(url: str, policy: DeployPolicy, tools: dict[str, Any], calls: list[Any]) -> None:
    async with open_remote(url, policy=policy) as server:
        for call in calls:
            contract = tools.get(call["name"])
            if contract is not None:
                call_tool = partial(server.caller.call, server.server_id, call["name"], contract)
                result = await call_tool(call["arguments"], timeout_s=10)
                print(call["name"], result.status, result.error_kind, result.hint)


if __name__ == "__main__":
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    main(sys.argv[-1], scenario, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")))
