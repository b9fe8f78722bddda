"""DeepNLP: the replica of its marketplace API: numbers as texts, configs that may be missing."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, reply_json
from demo.replicas.site import ReplicaSite
from demo.sites.configs import make_config
from demo.world.record import ServerRecord

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
