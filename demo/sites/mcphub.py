"""MCPHub: the replica of mcphub.com: a sitemap, and pages whose config is streamed."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from html import escape

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, reply_html
from demo.replicas.site import ReplicaSite
from demo.sites import sitemap
from demo.sites.configs import make_config
from demo.world.catalogue import RecordList
from demo.world.record import ServerRecord

_GATEWAY = "https://api.mcphub.com/mcp"


def make_shell(title: str, head: str, body: str, streamed: str = "") -> str:
    """A whole document; `streamed` comes after the visible page."""
    return f"""<!DOCTYPE html><html lang="en"><head><meta charSet="utf-8"/><title>{title}</title>
{head}</head><body><main>{body}</main>{streamed}<script>self.__next_f=[]</script></body></html>
"""


def make_page(record: ServerRecord, streams: bool = True) -> str:
    """A server's page: its own config stands in `div#S:0` at the end of the document, if it
    still `streams`."""
    here = f"/mcp-servers/{record.namespace}/{record.slug}"
    tabs = "".join(
        f'<a role="tab" href="{here}/{item}">{item.title()}</a>'
        for item in ("quality", "schema", "inspector", "comments")
    )
    source = f'<a href="{escape(record.repository)}">Repository</a>' if record.repository else ""
    body = f"""
<h1 class="text-3xl">{escape(record.namespace)}<!-- -->/<!-- -->{escape(record.slug)}</h1>
<a role="tab" href="{here}">Overview</a>{tabs}{source}
<h3 class="font-bold">Server config via mcphub</h3>
<div role="alert"><!--$?--><template id="B:0"></template><!--/$--></div>
<div class="stats"><div class="stat"><div class="stat-title">Tools</div>
<div class="stat-value">{len(record.tools)}</div></div></div>
<div class="prose">{_make_readme(record)}</div>"""
    title = f"{escape(record.title)} by {escape(record.namespace)} - MCP Server | MCPHub"
    return make_shell(
        title, _make_head(record, here), body, _make_streamed(record) if streams else ""
    )


def _make_head(record: ServerRecord, here: str) -> str:
    tags = escape(",".join((record.slug, record.namespace, *record.tags)))
    return f"""<meta name="description" content="{escape(record.description)}"/>
<meta name="author" content="{escape(record.namespace)}"/>
<meta name="article:published_time" content="{record.created_at}"/>
<meta name="article:modified_time" content="{record.revised_at}"/>
<meta name="article:tag" content="{tags}"/>
<link rel="canonical" href="https://mcphub.com{here}"/>
"""


def _make_readme(record: ServerRecord) -> str:
    """The author's text, with the way to start the server oneself."""
    config = make_config(record)
    block = f"<pre><code>{escape(json.dumps(config, indent=2))}</code></pre>" if config else ""
    return f"<h1>{escape(record.title)}</h1><p>{escape(record.description)}</p>{block}"


def _make_streamed(record: ServerRecord) -> str:
    """The answer to the placeholder: the marketplace's gateway with a bearer token in it."""
    entry = {
        "url": f"{_GATEWAY}/{record.namespace.lower()}-{record.slug}",
        "headers": {"Authorization": f"Bearer {_make_token()}"},
    }
    text = json.dumps({"mcpServers": {record.slug: entry}}, indent=2)
    return f'<div hidden id="S:0"><pre>{escape(text)}</pre></div>'


def _make_token() -> str:
    """Looks like a JSON Web Token and opens nothing."""
    members = ({"alg": "none", "typ": "JWT"}, {"sub": "demo", "note": "not a secret"}, "signature")
    texts = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in members)
    return ".".join(texts)


_SHARD = 1000


class McpHub(ReplicaSite):
    """No API, no paging."""

    name = "mcphub"
    robots = "User-agent: *\nAllow: /\n"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/mcp-servers/{author}/{slug}", self.serve_server),
            self.make_route("/sitemap.xml", self.serve_sitemap_index),
            self.make_route("/sitemap/{shard:int}.xml", self.serve_sitemap),
        ]

    def serve_server(self, request: Request) -> ReplicaReply:
        records = self.list_records()
        position = self._find_position(records, request)
        if position is None:
            return _reply_missing()
        streams = not self.fault_set().is_on("layout")
        return reply_html(make_page(records[position], streams))

    def serve_sitemap_index(self, request: Request) -> ReplicaReply:
        if self.fault_set().is_on("no_sitemap"):
            return _reply_missing()
        base = f"{request.url.scheme}://{request.url.netloc}"
        shards = max(1, -(-len(self.list_records()) // _SHARD))
        loop = [f"{base}/sitemap.xml"] if self.fault_set().is_on("cursor_loop") else []
        return sitemap.make_index([*loop, *(f"{base}/sitemap/{n}.xml" for n in range(shards))])

    def serve_sitemap(self, request: Request) -> ReplicaReply:
        if self.fault_set().is_on("no_sitemap"):
            return _reply_missing()
        base = f"{request.url.scheme}://{request.url.netloc}"
        records, shard = self.list_records(), request.path_params["shard"]
        here = records[shard * _SHARD : (shard + 1) * _SHARD]
        pages = [
            (f"{base}/mcp-servers/{item.namespace}/{item.slug}", item.revised_at) for item in here
        ]
        static: list[sitemap.Location] = [] if shard else [(f"{base}/mcp-servers", None)]
        last = (shard + 1) * _SHARD >= len(records)
        return sitemap.make_urls([*static, *pages], last=last, tag=self.name_member("loc"))

    def _find_position(self, records: RecordList, request: Request) -> int | None:
        position = records.find_position(request.path_params["slug"])
        if position is None or records[position].namespace != request.path_params["author"]:
            return None
        return position


def _reply_missing() -> ReplicaReply:
    return reply_html(make_shell("Not found | MCPHub", "", "<h1>404</h1>"), 404)
