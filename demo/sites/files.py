"""Files: what the demo serves beside its marketplaces: bundles to download, a remote MCP server."""

import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.remote import answered
from demo.replicas.reply import Reply, in_json
from demo.replicas.site import Site


class Files(Site):
    """`/bundles/<name>.mcpb` at today's version, and MCP over HTTP at `/mcp`."""

    name = "files"

    def routes(self) -> Sequence[Route]:
        return [
            self.route("/bundles/{name}", self.bundle),
            self.route("/mcp", self.mcp, method="POST"),
        ]

    def bundle(self, request: Request) -> Reply:
        name, world = request.path_params["name"].removesuffix(".mcpb"), self.world()
        for server in world.servers:
            if server.kind == "mcpb" and server.identifier == name:
                return Reply(world.bundle(server).data, "application/zip", last=True)
        return Reply(b"not found", "text/plain", 404)

    async def mcp(self, request: Request) -> Reply:
        try:
            answer = answered(json.loads(await request.body()))
        except ValueError:
            answer = answered(None)
        return Reply(b"", "text/plain", 202) if answer is None else in_json(answer)
