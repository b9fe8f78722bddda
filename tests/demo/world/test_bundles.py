"""The bundles speak MCP and do what their contracts say; the faults fail as meant."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.validate import validate_call
from demo.world.catalogue import SERVERS, pack

HEALTHY = sorted(
    (server.identifier, version)
    for server in SERVERS
    if server.kind == "mcpb" and server.identifier not in ("needs_key", "hangs")
    for version in server.versions.values()
)


def unpacked(folder: Path, name: str, version: str) -> Path:
    with zipfile.ZipFile(io.BytesIO(pack(name, version).data)) as archive:
        archive.extractall(folder)
    return folder / "server.py"


def talk(server: Path, *requests: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of a bundle to requests sent one per line, then end of input."""
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate([("initialize", opening), *requests])
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _RUN, str(server)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env={"HOME": str(server.parent)},
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


# Isolated mode leaves the script's own folder off the path; the sandbox's plain `python3` adds it.
_RUN = "import sys, runpy, os.path; p = sys.argv[1]; sys.path.insert(0, os.path.dirname(p)); \
runpy.run_path(p, run_name='__main__')"


@pytest.mark.parametrize(("name", "version"), HEALTHY)
def test_a_bundle_lists_three_to_six_described_tools(
    name: str, version: str, tmp_path: Path
) -> None:
    opened, listed = talk(unpacked(tmp_path, name, version), ("tools/list", {}))
    assert opened["result"]["serverInfo"]["version"] == version
    tools = listed["result"]["tools"]
    assert 3 <= len(tools) <= 6
    for tool in tools:
        assert len(tool["description"]) > 20
        assert tool["inputSchema"]["additionalProperties"] is False
        flaws = validate_call(tool, {"no_such_parameter": 1})
        assert flaws
        assert all(flaw.kind != "bad_schema" for flaw in flaws)


CALLS = [
    ("units", "1.2.0", "convert_length", {"value": 2, "from_unit": "mile", "to_unit": "km"}, "3.2"),
    ("dates", "1.0.1", "weekday_of", {"on": "2026-11-21"}, "Saturday"),
    ("dates", "1.0.1", "count_working_days", {"start": "2026-11-02", "end": "2026-11-08"}, "5"),
    ("textkit", "0.9.0", "make_slug", {"headline": "Café au lait, twice"}, "cafe-au-lait-twice"),
    ("tabular", "0.4.0", "sort_rows", {"table": "a\n10\n9", "by": "a"}, "a\n9\n10"),
    ("notes", "1.0.0", "create_note", {"title": "a", "text": "b"}, '"id": 1'),
    ("notes", "2.0.0", "create_note", {"title": "a", "body": "b"}, '"id": 1'),
    ("inventory", "1.1.0", "receive_goods", {"sku": "AB-0001", "quantity": 3}, "3"),
]


@pytest.mark.parametrize(("name", "version", "tool", "arguments", "expected"), CALLS)
def test_tools_do_what_they_say(
    name: str, version: str, tool: str, arguments: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    server = unpacked(tmp_path, name, version)
    call = ("tools/call", {"name": tool, "arguments": arguments})
    _, listed, answer = talk(server, ("tools/list", {}), call)
    contract = next(item for item in listed["result"]["tools"] if item["name"] == tool)
    assert validate_call(contract, arguments) == []
    assert not answer["result"].get("isError")
    assert expected in answer["result"]["content"][0]["text"]


def test_a_wrong_call_is_an_error_of_the_tool_and_the_server_goes_on(tmp_path: Path) -> None:
    server = unpacked(tmp_path, "dates", "1.0.1")
    wrong = ("tools/call", {"name": "weekday_of", "arguments": {"day": "today"}})
    unknown = ("tools/call", {"name": "nothing", "arguments": {}})
    _, first, second, third = talk(server, wrong, unknown, ("ping", {}))
    assert first["result"]["isError"]
    assert second["error"]["code"] == -32602
    assert third["result"] == {}


@pytest.mark.parametrize("key", [None, "placeholder", "wk_live_placeholder", "YOUR_API_KEY"])
def test_the_keyed_bundle_ends_at_start_without_a_real_looking_key(
    key: str | None, tmp_path: Path
) -> None:
    server = unpacked(tmp_path, "needs_key", "0.3.0")
    done = subprocess.run(
        [sys.executable, str(server)],
        env={"WEATHERKEY_API_KEY": key} if key else {},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "API key required" in done.stderr
