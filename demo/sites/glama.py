"""Glama: the replica of its API: servers without commands, connectors that can be run."""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, make_cursor, read_cursor, reply_json
from demo.replicas.site import ReplicaSite
from demo.world.record import KEYS, ServerRecord

_KEY = "This endpoint requires an API key. Create one at https://glama.ai/settings/api-keys."


class GlamaSite(ReplicaSite):
    """`/api/mcp/v1`, every endpoint behind a key. Newest first."""

    name = "glama"
    robots = "User-agent: *\nDisallow: /api/\nDisallow: /settings\nDisallow: /*?after=\nAllow: /\n"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route(f"{prefix}/v1/{name}", partial(self.serve_page, name=name))
            for prefix in ("/api/mcp", "")  # below the site, or as the API's own base
            for name in ("servers", "connectors")
        ]

    def refuse_request(self, request: Request) -> ReplicaReply | None:
        right = request.headers.get("authorization") == f"Bearer {KEYS['glama']['api_key']}"
        if right and not self.fault_set().is_on("wrong_key"):
            return None
        return reply_json({"error": {"code": "unauthorized", "message": _KEY}}, 401)

    def serve_page(self, request: Request, name: str) -> ReplicaReply:
        """A page of the servers or of the connectors."""
        hosted = name == "connectors"
        query, records = request.query_params, self.list_records()
        first = query.get("first", "10")
        if not first.isdecimal() or not 1 <= int(first) <= 100:
            return reply_json({"error": {"code": "bad_request", "message": "first: 1 to 100"}}, 400)
        after = query.get("after")
        position = read_cursor("position", after) if after is not None else len(records)
        if position is None:
            return reply_json({"error": {"code": "bad_request", "message": "after: unknown"}}, 400)
        # From the last record to the first; one more than asked for says whether there is more.
        size = self.limit_page_size(int(first))
        below = ((n, records[n]) for n in reversed(range(min(position, len(records)))))
        matching = list(islice((item for item in below if is_hosted(item[1]) == hosted), size + 1))
        page, more = matching[:size], len(matching) > size
        info = {
            "endCursor": make_cursor("position", page[-1][0]) if page else None,
            "hasNextPage": more,
            "hasPreviousPage": after is not None,
            "startCursor": make_cursor("position", page[0][0]) if page else None,
        }
        if self.fault_set().is_on("cursor_loop") and page:
            info |= {"hasNextPage": True, "endCursor": after or info["endCursor"]}
        make_one = _make_connector if hosted else _make_server
        body = {self.name_member(name): [make_one(record) for _, record in page], "pageInfo": info}
        return reply_json(body, last=not more)


def is_hosted(record: ServerRecord) -> bool:
    """Whether it is a connector: somebody else runs it."""
    return record.remote is not None and record.package is None


def _make_base(record: ServerRecord, folder: str) -> dict[str, Any]:
    return {
        "id": record.make_digits(10),
        "name": record.title,
        "namespace": record.namespace,
        "slug": record.slug,
        "description": record.description,
        "url": f"https://glama.ai/mcp/{folder}/{record.namespace}/{record.slug}",
        "repository": {"url": record.repository} if record.repository else None,
    }


def _make_server(record: ServerRecord) -> dict[str, Any]:
    """No command and no package: only what environment variables it wants."""
    properties = {}
    for variable in record.inputs:
        facts = {"type": "string", "description": variable.description}
        properties[variable.name] = facts | (
            {"default": variable.default} if variable.default else {}
        )
    required = [item.name for item in record.inputs if item.required]
    schema = {"type": "object", "properties": properties, "required": required}
    return _make_base(record, "servers") | {
        "attributes": ["hosting:local-only"],
        "environmentVariablesJsonSchema": schema,
        "spdxLicense": {"name": "MIT License", "url": "https://spdx.org/licenses/MIT.json"},
        "tools": [],
    }


def _make_connector(record: ServerRecord) -> dict[str, Any]:
    remote = record.remote
    assert remote is not None
    transport = "sse" if remote.transport == "sse" else "streamable_http"
    connection = {"authType": remote.auth, "transport": transport, "url": remote.url}
    return _make_base(record, "connectors") | {
        "attributes": ["tools"],
        "toolCount": len(record.tools),
        "deprecatedAt": None,
        "connection": connection,
        "tools": [{"name": name, "description": name.replace("_", " ")} for name in record.tools],
    }
