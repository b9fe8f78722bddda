"""Files: what the demo serves beside its marketplaces: bundles to download, a remote MCP server."""

import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.remote import answer_message
from demo.replicas.reply import Reply, reply_json
from demo.replicas.site import Site


class Files(Site):
    """`/bundles/<name>.mcpb` at today's version, and MCP over HTTP at `/mcp`."""

    name = "files"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/bundles/{name}", self.serve_bundle),
            self.make_route("/mcp", self.serve_mcp, method="POST"),
        ]

    def serve_bundle(self, request: Request) -> Reply:
        name, world = request.path_params["name"].removesuffix(".mcpb"), self.world()
        for server in world.servers:
            if server.kind == "mcpb" and server.identifier == name:
                return Reply(world.find_bundle(server).data, "application/zip", last=True)
        return Reply(b"not found", "text/plain", 404)

    async def serve_mcp(self, request: Request) -> Reply:
        try:
            answer = answer_message(json.loads(await request.body()))
        except ValueError:
            answer = answer_message(None)
        return Reply(b"", "text/plain", 202) if answer is None else reply_json(answer)
