"""Files: what the demo serves beside its marketplaces: bundles to download, a remote MCP server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, reply_json
from demo.replicas.site import ReplicaSite
from demo.world.catalogue import pack

PROTOCOLS = ("2025-03-26", "2025-06-18", "2025-11-25")

_TERMS = {
    "contract": "The canonical form of what a tool says about itself.",
    "drift": "Contracts that change between one run and the next.",
    "recipe": "A pinned way to launch one server.",
}


def _make_tool(name: str, description: str, properties: Mapping[str, Any], *required: str) -> Any:
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    _make_tool(
        "define_term",
        "Explain one term of the glossary in a sentence.",
        {"term": {"type": "string", "description": "The term, in the singular"}},
        "term",
    ),
    _make_tool(
        "find_terms",
        "Find terms whose name or explanation holds some words.",
        {
            "words": {"type": "string", "description": "What to look for"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        },
        "words",
    ),
]


class FileSite(ReplicaSite):
    """`/bundles/<name>.mcpb` at today's version, and MCP over HTTP at `/mcp`."""

    name = "files"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/bundles/{name}", self.serve_bundle),
            self.make_route("/mcp", self.serve_mcp, method="POST"),
        ]

    def serve_bundle(self, request: Request) -> ReplicaReply:
        name, world = request.path_params["name"].removesuffix(".mcpb"), self.world()
        for server in world.servers:
            if server.kind == "mcpb" and server.identifier == name:
                packed = pack(name, server.find_version(world.day))
                return ReplicaReply(packed.data, "application/zip", last=True)
        return ReplicaReply(b"not found", "text/plain", 404)

    async def serve_mcp(self, request: Request) -> ReplicaReply:
        try:
            answer = answer_message(json.loads(await request.body()))
        except ValueError:
            answer = answer_message(None)
        return ReplicaReply(b"", "text/plain", 202) if answer is None else reply_json(answer)


def answer_message(message: Any) -> dict[str, Any] | None:
    """The answer to one JSON-RPC message; None where none is due (a notification)."""
    if not isinstance(message, dict) or "method" not in message:
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no request"}}
    if "id" not in message:
        return None
    return {"jsonrpc": "2.0", "id": message["id"], **_answer_method(message)}


def _answer_method(message: Mapping[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            version = params.get("protocolVersion")
            return {
                "result": {
                    "protocolVersion": version if version in PROTOCOLS else PROTOCOLS[-1],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "glossary", "version": "1.0.0"},
                }
            }
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            return {"result": _call_tool(params)}
        case other:
            return {"error": {"code": -32601, "message": f"method {other!r} is unknown"}}


def _call_tool(params: Mapping[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments") or {}
    if params.get("name") == "define_term":
        text = _TERMS.get(str(arguments.get("term")), "")
    else:
        words = str(arguments.get("words", "")).lower()
        terms = [term for term, meaning in _TERMS.items() if words in f"{term} {meaning}".lower()]
        text = ", ".join(terms[: int(arguments.get("limit", 10))])
    return {"content": [{"type": "text", "text": text or "no such term"}], "isError": not text}
