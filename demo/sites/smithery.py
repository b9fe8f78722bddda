"""Smithery: the replica of its platform API, and of its site's sitemap on the same port."""

import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, reply_json
from demo.replicas.site import ReplicaSite
from demo.sites import sitemap
from demo.world.record import RecordInput, ServerRecord

CAP = 500  # results of one query, whatever `totalCount` says
_SHARDS = 2


class SmitherySite(ReplicaSite):
    """Reading needs no key."""

    name = "smithery"
    robots = "User-agent: *\nDisallow: /api/\nDisallow: /_next/\nAllow: /\n"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/servers", self.list_servers),
            self.make_route("/servers/{name:path}", self.serve_server),
            self.make_route("/sitemap_index.xml", self.serve_sitemap_index),
            self.make_route("/sitemaps/servers-{shard:int}.xml", self.serve_sitemap),
        ]

    def list_servers(self, request: Request) -> ReplicaReply:
        query, records = request.query_params, self.list_records()
        page, size = query.get("page", "1"), query.get("pageSize", "10")
        if not (page.isdecimal() and size.isdecimal() and int(page) > 0 and 0 < int(size) <= 100):
            return reply_json({"error": "Invalid page or pageSize"}, 400)
        number, per_page = int(page), int(size)
        first = 0 if self.fault_set().is_on("cursor_loop") else (number - 1) * per_page
        total, here = len(records), records[first : min(first + per_page, CAP)]
        body = {
            self.name_member("servers"): [_make_item(item) for item in here],
            "pagination": {
                "currentPage": number,
                "pageSize": per_page,
                "totalPages": -(-total // per_page),
                "totalCount": total,
            },
        }
        return reply_json(body, last=first + per_page >= min(total, CAP))

    def serve_server(self, request: Request) -> ReplicaReply:
        """A name's slash is encoded: `/servers/namespace%2Fname`."""
        name = request.path_params["name"]
        encoded = (
            b"/servers/" in request.scope["raw_path"] and request.scope["raw_path"].count(b"/") == 2
        )
        record = self.list_records().find(name.rpartition("/")[2]) if encoded else None
        if record is None or make_qualified_name(record) != name:
            return reply_json({"error": "Server not found"}, 404)
        return reply_json(_make_answer(record))

    def serve_sitemap_index(self, request: Request) -> ReplicaReply:
        if self.fault_set().is_on("no_sitemap"):
            return reply_json({"error": "Not found"}, 404)
        base = f"{request.url.scheme}://{request.url.netloc}"
        shards = [f"{base}/sitemaps/servers-{shard}.xml" for shard in range(_SHARDS)]
        loop = [f"{base}/sitemap_index.xml"] if self.fault_set().is_on("cursor_loop") else []
        return sitemap.make_index([*loop, *shards])

    def serve_sitemap(self, request: Request) -> ReplicaReply:
        base = f"{request.url.scheme}://{request.url.netloc}"
        records, shard = self.list_records(), request.path_params["shard"]
        size = -(-len(records) // _SHARDS)
        here = records[shard * size : (shard + 1) * size]
        return sitemap.make_urls(
            ((f"{base}/servers/{make_qualified_name(item)}", item.revised_at) for item in here),
            last=shard == _SHARDS - 1,
            tag=self.name_member("loc"),
        )


def make_qualified_name(record: ServerRecord) -> str:
    return f"{record.namespace}/{record.slug}"


def _is_remote(record: ServerRecord) -> bool:
    return record.package is None or record.package.kind != "mcpb"


def _make_item(record: ServerRecord) -> dict[str, Any]:
    uses = int(record.make_digits(4), 16)
    return {
        "id": record.make_digits(8),
        "qualifiedName": make_qualified_name(record),
        "namespace": record.namespace,
        "slug": record.slug,
        "displayName": record.title,
        "description": record.description,
        "verified": uses % 10 == 0,
        "useCount": uses,
        "remote": _is_remote(record),
        "isDeployed": _is_remote(record),
        "createdAt": record.created_at,
        "homepage": f"https://smithery.ai/servers/{make_qualified_name(record)}",  # not an endpoint
        "score": round(uses / 65536, 3),
    }


def _make_answer(record: ServerRecord) -> dict[str, Any]:
    connection = _make_connection(record)
    tools = [
        {"name": name, "description": name.replace("_", " "), "inputSchema": {"type": "object"}}
        for name in record.tools
    ]
    return {
        "qualifiedName": make_qualified_name(record),
        "displayName": record.title,
        "description": record.description,
        "remote": _is_remote(record),
        "deploymentUrl": connection.get("deploymentUrl") if connection else None,
        "connections": [connection] if connection else [],
        "security": {"scanPassed": True},
        "tools": tools,
    }


def _make_connection(record: ServerRecord) -> dict[str, Any] | None:
    """Most servers are reached through the marketplace's gateway, bundles are downloaded."""
    package, schema = record.package, _make_schema(record.inputs)
    if package is None and record.remote is None:
        return None
    if package and package.kind == "mcpb":
        bundle = {"type": "stdio", "bundleUrl": package.url, "runtime": "python"}
        return bundle | {"configSchema": schema}
    url = f"https://server.smithery.ai/{make_qualified_name(record)}/mcp"
    if int(record.make_digits(2), 16) % 3 == 0:
        url = f"https://{record.slug}--{record.namespace.lower()}.run.tools"
    return {"type": "http", "deploymentUrl": url, "configSchema": schema}


def _make_schema(inputs: tuple[RecordInput, ...]) -> dict[str, Any]:
    """What the user gives, as JSON Schema; `x-from` says where a value travels."""
    if not inputs:
        return {}
    properties = {}
    for variable in inputs:
        place = {"header": f"x-{variable.name.lower().replace('_', '-')}"}
        place = place if variable.secret else {"query": _convert_to_camel(variable.name)}
        facts: dict[str, Any] = {
            "type": "string",
            "description": variable.description,
            "x-from": place,
        }
        properties[_convert_to_camel(variable.name)] = facts | (
            {"default": variable.default} if variable.default else {}
        )
    required = [_convert_to_camel(item.name) for item in inputs if item.required]
    return {"type": "object", "properties": properties, "required": required}


def _convert_to_camel(name: str) -> str:
    first, *words = re.split(r"_+", name) if name.isupper() else [name]
    first = first.lower() if name.isupper() else first
    return first + "".join(word.title() for word in words)
