"""DeepNLP: the replica of its marketplace API: numbers as texts, configs that may be missing."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import Reply, in_json
from demo.replicas.site import Site
from demo.sites.configs import config
from demo.world.record import Record

_API = "/api/mcp_marketplace/v1"


class DeepNlp(Site):
    """Reading needs no key; pages are numbered from 0."""

    name = "deepnlp"

    def routes(self) -> Sequence[Route]:
        return [
            self.route(_API, self.list_servers),
            self.route(f"{_API}/server/{{owner}}/{{repo}}", self.server),
            self.route(f"{_API}/tools/{{owner}}/{{repo}}", self.tools),
        ]

    def list_servers(self, request: Request) -> Reply:
        query, records = request.query_params, self.records()
        page, size, offset = (
            query.get(name, default)
            for name, default in (("page_id", "0"), ("count_per_page", "20"), ("offset", ""))
        )
        if not (page.isdecimal() and size.isdecimal() and (offset or "0").isdecimal()):
            return in_json({"error": "page_id, count_per_page and offset are numbers"}, 400)
        per_page = max(1, min(int(size), 100))
        start = int(offset) if offset else int(page) * per_page
        if self.fault_set().on("cursor_loop"):
            start = 0
        here = records[start : start + per_page]
        text = query.get("query", "")
        items = [_item(one) for one in here if text.lower() in one.title.lower()]
        body = {
            "query": text,
            self.key("items"): items,
            "count": len(items),
            "total_hits": str(len(records)),
        }
        return in_json(body, last=start + per_page >= len(records))

    def server(self, request: Request) -> Reply:
        """One record; `items` is empty where there is none."""
        record = self._named(request)
        if record is None:
            return in_json({"total_hits": 0, "id": "", "items": []})
        found = None if self._empty(record) else config(record)
        facts = _item(record) | {
            "description": record.description,
            "ext_info": {"tools": []},
            "config": [] if found is None else [found],
        }
        del facts["content"], facts["content_description"]
        return in_json({"total_hits": 1, "id": facts["id"], "items": [facts]})

    def tools(self, request: Request) -> Reply:
        record = self._named(request)
        names = record.tools if record else ()
        tools = [
            {
                "name": name,
                "description": name.replace("_", " "),
                "input_schema": {"type": "object", "properties": {}},
            }
            for name in names
        ]
        return in_json({"id": f"/{native_id(record)}" if record else "", "tools": tools})

    def _empty(self, record: Record) -> bool:
        """In a full world one config in nine was never filled in."""
        return self.world().page is None and int(record.made(4), 16) % 9 == 0

    def _named(self, request: Request) -> Record | None:
        record = self.records().find(request.path_params["repo"])
        owner = request.path_params["owner"]
        return record if record and record.namespace.lower() == owner else None


def native_id(record: Record) -> str:
    return f"{record.namespace.lower()}/{record.slug}"


def _item(record: Record) -> dict[str, Any]:
    reviews = int(record.made(1), 16)
    return {
        "content_name": record.title,
        "publisher_id": f"pub-{record.namespace.lower()}",
        "website": record.repository or "",
        "review_cnt": str(reviews),
        "subfield": (record.tags or ("OTHER",))[0].upper(),
        "field": "MCP SERVER",
        "rating": f"{3 + reviews % 3}.0",
        "id": native_id(record),
        "content_tag_list": ",".join(record.tags),
        "content": "",
        "content_description": record.description,
        "thumbnail_picture": "",
    }
