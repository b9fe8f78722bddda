"""Files: where the demo's own bundles are downloaded from.

What belongs here: packed bundles by name. What does not: packing (`demo/bundle.py`).
"""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import Route

from demo.reply import Reply
from demo.site import Site


class Files(Site):
    """`/bundles/<name>.mcpb` at today's version."""

    name = "files"

    def routes(self) -> Sequence[Route]:
        return [self.route("/bundles/{name}", self.bundle)]

    def bundle(self, request: Request) -> Reply:
        name, world = request.path_params["name"].removesuffix(".mcpb"), self.world()
        for server in world.servers:
            if server.kind == "mcpb" and server.identifier == name:
                return Reply(world.bundle(server).data, "application/zip", last=True)
        return Reply(b"not found", "text/plain", 404)
