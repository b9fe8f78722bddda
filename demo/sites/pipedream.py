"""Pipedream: the replica of its Connect API: a token for client credentials, then apps."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, make_cursor, read_cursor, reply_json
from demo.replicas.site import ReplicaSite
from demo.world.record import KEYS, ServerRecord

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
