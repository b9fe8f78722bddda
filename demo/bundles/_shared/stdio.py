"""A tiny MCP server over standard input and output, of the standard library only.

Copied into every bundle, so that a bundle starts in a sandbox without a network.
"""

import inspect
import json
import sys
from pathlib import Path

MANIFEST = json.loads((Path(__file__).parent / "manifest.json").read_text(encoding="utf-8"))
VERSION = tuple(int(part) for part in MANIFEST["version"].split("."))
_PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_TOOLS = {}


def tool(description, /, *, required=(), read_only=True, **properties):
    """Registers a function as a tool; keyword arguments are the JSON Schema of its parameters."""

    def register(function):
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            schema["required"] = list(required)
        contract = {
            "name": function.__name__,
            "description": description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": read_only, "openWorldHint": False},
        }
        _TOOLS[function.__name__] = (contract, function)
        return function

    return register


def serve():
    """Answers requests line by line until standard input ends."""
    for line in sys.stdin:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        if not isinstance(request, dict) or "id" not in request or "method" not in request:
            continue
        _send({"jsonrpc": "2.0", "id": request["id"], **_answer(request)})


def _answer(request):
    params = request.get("params") or {}
    method = request["method"]
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "result": {
                "protocolVersion": asked if asked in _PROTOCOLS else _PROTOCOLS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": MANIFEST["name"], "version": MANIFEST["version"]},
            }
        }
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [contract for contract, _ in _TOOLS.values()]}}
    if method == "tools/call":
        return _call(params)
    return {"error": {"code": -32601, "message": f"method {method!r} is unknown"}}


def _call(params):
    name = params.get("name")
    if name not in _TOOLS:
        return {"error": {"code": -32602, "message": f"tool {name!r} is unknown"}}
    _, function = _TOOLS[name]
    try:
        arguments = params.get("arguments") or {}
        inspect.signature(function).bind(**arguments)
        value = function(**arguments)
    except Exception as error:  # the caller learns what was wrong; the server goes on
        text = f"{type(error).__name__}: {error}"
        return {"result": {"content": [{"type": "text", "text": text}], "isError": True}}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"result": {"content": [{"type": "text", "text": text}]}}


def _send(message):
    sys.stdout.write(json.dumps(message, ensure_ascii=False) + "\n")
    sys.stdout.flush()
