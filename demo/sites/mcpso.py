"""mcp.so: the replica of its website: sitemap, server pages, and the script that fills them."""

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import HTML, ReplicaReply, reply_html
from demo.replicas.site import ReplicaSite
from demo.sites import sitemap
from demo.sites.configs import make_config
from demo.world.record import FOUNDED, ServerRecord

_SCRIPT = (Path(__file__).parent / "mcpso.js").read_bytes()
_STATIC = "mcp-server-time"  # in the small worlds the one page whose source shows the config
_RENDERED = 50  # in a full world one page in so many needs a browser: a browser is slow
_CHILD = 1000  # servers in one child sitemap


class McpSo(ReplicaSite):
    """mcp.so after July 2026: `/servers/<slug>`, no API."""

    name = "mcpso"
    robots = "User-agent: *\nDisallow: /api/\nDisallow: /search\nAllow: /\n"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/sitemap.xml", self.serve_sitemap),
            self.make_route("/assets/app.js", self.serve_script),
            self.make_route("/servers/{slug}", self.serve_page),
            self.make_route("/", self.serve_home),
        ]

    def serve_script(self, request: Request) -> ReplicaReply:
        return ReplicaReply(_SCRIPT, "text/javascript")

    def serve_home(self, request: Request) -> ReplicaReply:
        return reply_html("<!doctype html><html><body><h1>MCP servers</h1></body></html>")

    def serve_sitemap(self, request: Request) -> ReplicaReply:
        if self.fault_set().is_on("no_sitemap"):
            return reply_html("<!doctype html><html><body>Not found</body></html>", 404)
        base = f"{request.url.scheme}://{request.url.netloc}"
        records, size = self.list_records(), self.limit_page_size(_CHILD)
        pages = max(1, -(-len(records) // size))
        section, number = request.query_params.get("section"), request.query_params.get("page", "1")
        if section is None:
            locations = [f"{base}/sitemap.xml?section=static"]
            locations += [f"{base}/sitemap.xml?section=servers&page={n + 1}" for n in range(pages)]
            if self.fault_set().is_on("cursor_loop"):
                locations.insert(1, f"{base}/sitemap.xml")
            return sitemap.make_index(locations)
        if section != "servers" or not number.isdecimal():
            return sitemap.make_urls([(f"{base}/", None)], last=False)
        here = records[(int(number) - 1) * size : int(number) * size]
        return sitemap.make_urls(
            ((f"{base}/servers/{item.slug}", item.revised_at) for item in here),
            last=int(number) == pages,
            languages=("zh", "ja"),
            tag=self.name_member("loc"),
        )

    def serve_page(self, request: Request) -> ReplicaReply:
        records = self.list_records()
        position = records.find_position(request.path_params["slug"])
        if position is None:
            return reply_html("<!doctype html><html><body>Not found</body></html>", 404)
        near = {(position + step) % len(records) for step in (1, 2, 3)} - {position}
        related = [records[item].slug for item in sorted(near)]
        return ReplicaReply(self._make_page(records[position], related).encode(), HTML)

    def _make_page(self, record: ServerRecord, related: list[str]) -> str:
        content = _make_shown(record)
        small = self.world().page is not None
        static = record.slug == _STATIC if small else int(record.make_digits(4), 16) % _RENDERED > 0
        chunk = "" if static else base64.b64encode(json.dumps(content).encode()).decode()
        stream = f"{_make_stream(record, related)},chunk:{_quote_js(chunk)}"
        body = _make_static(content) if static else '<div class="skeleton">Loading</div>'
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(record.title)} MCP server</title>
<script>const $R=[];window.$page={{{stream}}};</script>
<script src="/assets/app.js" defer></script></head>
<body><main><h1>{escape(record.title)}</h1><p>{escape(record.description)}</p>
<section id="content">{body}</section></main>
<img src="https://statistics.invalid/pixel.gif" alt="" width="1" height="1"></body></html>
"""


def _make_shown(record: ServerRecord) -> dict[str, Any]:
    """What the page's script puts into it."""
    if record.package and record.package.kind == "mcpb":
        return {"bundle": record.package.url, "sha256": record.package.sha256}
    config = make_config(record)
    if config is None:
        return {"note": "Clone the repository and follow its README."}
    return {"config": config}


def _make_static(content: dict[str, Any]) -> str:
    """The same without a script."""
    if "bundle" in content:
        link = f'<a href="{content["bundle"]}" data-sha256="{content["sha256"]}">'
        return f"{link}Install bundle (.mcpb)</a>"
    text = content.get("note") or json.dumps(content["config"], indent=2)
    return f"<pre><code>{escape(text)}</code></pre>"


def _make_stream(record: ServerRecord, related: list[str]) -> str:
    """The page's data as a framework streams it: JavaScript, not JSON."""
    others = ",".join(
        f"{{slug:{_quote_js(slug)},createdAt:new Date('{FOUNDED}')}}" for slug in related
    )
    return (
        f"server:$R[16]={{slug:{_quote_js(record.slug)},"
        f"previousSlug:{_quote_js(record.slug + '/author')},"
        f"name:{_quote_js(record.title)},description:{_quote_js(record.description)},"
        f"github:{_quote_js(record.repository or '')},"
        f"createdAt:$R[17]=new Date('{record.created_at}'),"
        f"updatedAt:new Date({_quote_js(record.revised_at)})}},"
        f"related:[{others}]"
    )


def _quote_js(text: str) -> str:
    """A text as a single-quoted JavaScript string."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "'" + escaped.replace("<", "\\x3c").replace("\r", "\\r") + "'"
