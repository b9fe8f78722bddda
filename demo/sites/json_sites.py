"""JSON sites: the replicas of Glama, DeepNLP and Pipedream, whose lists are plain JSON."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, make_cursor, read_cursor, reply_json
from demo.replicas.site import ReplicaSite
from demo.sites.configs import make_config
from demo.world.record import KEYS, ServerRecord

_API = "/api/mcp_marketplace/v1"


class DeepNlp(ReplicaSite):
    """Reading needs no key; pages are numbered from 0."""

    name = "deepnlp"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route(_API, self.list_servers),
            self.make_route(f"{_API}/server/{{owner}}/{{repo}}", self.serve_server),
            self.make_route(f"{_API}/tools/{{owner}}/{{repo}}", self.serve_tools),
        ]

    def list_servers(self, request: Request) -> ReplicaReply:
        query, records = request.query_params, self.list_records()
        page, size = query.get("page_id", "0"), query.get("count_per_page", "20")
        if not (page.isdecimal() and size.isdecimal()):
            return reply_json({"error": "page_id and count_per_page are numbers"}, 400)
        per_page = max(1, min(int(size), 100))
        start = 0 if self.fault_set().is_on("cursor_loop") else int(page) * per_page
        items = [_make_item(record) for record in records[start : start + per_page]]
        body = {
            "query": "",
            self.name_member("items"): items,
            "count": len(items),
            "total_hits": str(len(records)),
        }
        return reply_json(body, last=start + per_page >= len(records))

    def serve_server(self, request: Request) -> ReplicaReply:
        """One record; `items` is empty where there is none."""
        record = self._find_record(request)
        if record is None:
            return reply_json({"total_hits": 0, "id": "", "items": []})
        config = None if self._is_empty(record) else make_config(record)
        facts = _make_item(record) | {
            "description": record.description,
            "ext_info": {"tools": []},
            "config": [] if config is None else [config],
        }
        del facts["content"], facts["content_description"]
        return reply_json({"total_hits": 1, "id": facts["id"], "items": [facts]})

    def serve_tools(self, request: Request) -> ReplicaReply:
        """The tools of one record, their schemas in snake_case."""
        record = self._find_record(request)
        if record is None:
            return reply_json({"id": "", "tools": []})
        tools = [
            {"name": name, "description": name.replace("_", " "), "input_schema": {}}
            for name in record.tools
        ]
        return reply_json({"id": f"/{_make_item(record)['id']}", "tools": tools})

    def _find_record(self, request: Request) -> ServerRecord | None:
        record = self.list_records().find(request.path_params["repo"])
        owned = record is not None and record.namespace.lower() == request.path_params["owner"]
        return record if owned else None

    def _is_empty(self, record: ServerRecord) -> bool:
        """In a full world one config in nine was never filled in."""
        return self.world().page is None and int(record.make_digits(4), 16) % 9 == 0


def _make_item(record: ServerRecord) -> dict[str, Any]:
    reviews = int(record.make_digits(1), 16)
    return {
        "content_name": record.title,
        "publisher_id": f"pub-{record.namespace.lower()}",
        "website": record.repository or "",
        "review_cnt": str(reviews),
        "subfield": (record.tags or ("OTHER",))[0].upper(),
        "field": "MCP SERVER",
        "rating": f"{3 + reviews % 3}.0",
        "id": f"{record.namespace.lower()}/{record.slug}",
        "content_tag_list": ",".join(record.tags),
        "content": "",
        "content_description": record.description,
        "thumbnail_picture": "",
    }


TOKEN = "demo-access-token"  # what the demo's keys are exchanged for; not secret


class PipedreamSite(ReplicaSite):
    """`/v1/oauth/token` and `/v1/connect/apps`."""

    name = "pipedream"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/v1/oauth/token", self.serve_token, method="POST", keyed=False),
            self.make_route("/v1/connect/apps", self.serve_apps),
        ]

    def refuse_request(self, request: Request) -> ReplicaReply | None:
        if request.headers.get("authorization") == f"Bearer {TOKEN}":
            return None
        return reply_json({"error": "unauthorized"}, 401)

    async def serve_token(self, request: Request) -> ReplicaReply:
        """Client credentials in a form."""
        form = dict(parse_qsl((await request.body()).decode(errors="replace")))
        if form.get("grant_type") != "client_credentials":
            return reply_json({"error": "unsupported_grant_type"}, 400)
        right = all(form.get(name) == value for name, value in KEYS["pipedream"].items())
        if not right or self.fault_set().is_on("wrong_key"):
            return reply_json({"error": "invalid_client"}, 401)
        return reply_json({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})

    def serve_apps(self, request: Request) -> ReplicaReply:
        query, records = request.query_params, self.list_records()
        limit, after = query.get("limit", "10"), query.get("after")
        if not limit.isdecimal() or not 1 <= int(limit) <= 100:
            return reply_json({"error": "limit: 1 to 100"}, 400)
        start = read_cursor("app", after) if after else 0
        if start is None:
            return reply_json({"error": "after: unknown cursor"}, 400)
        here = records[start : start + int(limit)]
        end = make_cursor("app", start + len(here)) if here else None
        if self.fault_set().is_on("cursor_loop"):
            end = after or end
        info = {
            "count": len(here),
            "total_count": len(records),
            "start_cursor": make_cursor("app", start) if here else None,
            "end_cursor": end,
        }
        body = {self.name_member("data"): [_make_app(item) for item in here], "page_info": info}
        return reply_json(body, last=start + int(limit) >= len(records))


def _make_app(record: ServerRecord) -> dict[str, Any]:
    fields = [
        {"name": item.name.lower(), "label": item.name, "optional": not item.required}
        for item in record.inputs
    ]
    oauth = record.remote is not None and record.remote.auth == "oauth2"
    return {
        "id": f"app_{record.make_digits(6)}",
        "name_slug": record.slug,
        "name": record.title,
        "description": record.description,
        "auth_type": "oauth" if oauth else "keys" if record.inputs else "none",
        "categories": [tag.replace("_", " ").title() for tag in record.tags],
        "custom_fields_json": json.dumps(fields),
    }


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
