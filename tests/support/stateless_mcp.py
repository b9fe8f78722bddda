"""A small server of the protocol of 2026-07-28 alone: it refuses `initialize` and answers requests
that name their version and client. Its source runs by itself too, over standard streams."""

import json
import sys

VERSION = "2026-07-28"
KEY = "io.modelcontextprotocol/"
CACHED = {"resultType": "complete", "ttlMs": 1000, "cacheScope": "private"}


def reply_stateless(message, tools, versions=(VERSION,), call=None):
    """The JSON-RPC answer to a message, or None to a notification. call: (name, arguments) -> the
    result of `tools/call`."""
    if "id" not in message:
        return None
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    version, method = meta.get(KEY + "protocolVersion"), message["method"]
    if method in ("initialize", "ping"):
        return _refuse(message, -32601, f"Method not found: {method}")
    if version is None or not isinstance(meta.get(KEY + "clientCapabilities"), dict):
        return _refuse(message, -32602, "_meta names no version or no capabilities")
    if version not in versions:
        data = {"supported": list(versions), "requested": version}
        return _refuse(message, -32022, "Unsupported protocol version", data)
    if method == "server/discover":
        about = {
            "supportedVersions": list(versions),
            "capabilities": {"tools": {}, "prompts": {}},
            "instructions": "Ask one thing at a time.",
            "_meta": {KEY + "serverInfo": {"name": "modern", "version": "3"}},
        }
        return _answer(message, {**about, **CACHED})
    if method == "tools/list":
        half = (len(tools) + 1) // 2
        if params.get("cursor"):
            return _answer(message, {"tools": tools[half:], **CACHED})
        return _answer(message, {"tools": tools[:half], "nextCursor": "2", **CACHED})
    if method == "prompts/list":
        return _answer(message, {"prompts": [{"name": "plan"}], **CACHED})
    if method == "tools/call" and call is not None:
        return _answer(message, {"resultType": "complete", **call(params["name"], params)})
    return _refuse(message, -32601, f"Method not found: {method}")


def _answer(message, result):
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _refuse(message, code, words, data=None):
    error = {"code": code, "message": words} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def serve_stateless(tools, versions=(VERSION,), call=None):
    for line in sys.stdin:
        reply = reply_stateless(json.loads(line), tools, versions, call)
        if reply is not None:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
