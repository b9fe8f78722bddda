"""MCPHub: the replica of mcphub.com: streamed pages that form a graph of links.

The browse page shows a few servers and every tag; no page has a next one. Everything can be
reached through authors, tags and related servers; the sitemap, which can be switched off, is the
short way.
"""

from collections.abc import Sequence
from functools import partial
from html import escape

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import Reply, reply_html
from demo.replicas.site import Site
from demo.sites import sitemap
from demo.sites.mcphub_page import make_cards, make_page, make_shell
from demo.world.listing_page import RecordList
from demo.world.record import Record

_SHOWN = 24  # cards on the browse page and on a tag's page
_SHARD = 1000
_Groups = dict[str, list[Record]]


class McpHub(Site):
    """No API, no paging."""

    name = "mcphub"
    robots = "User-agent: *\nAllow: /\n"
    _grouped: tuple[RecordList, dict[str, _Groups]] | None = None

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route("/", self.serve_browse),
            self.make_route("/mcp-servers", self.serve_browse),
            self.make_route("/mcp-servers/{name}", partial(self.serve_group, by="author")),
            self.make_route("/mcp-servers/{author}/{slug}", self.serve_server),
            self.make_route("/tags/{name}", partial(self.serve_group, by="tag")),
            self.make_route("/sitemap.xml", self.serve_sitemap_index),
            self.make_route("/sitemap/{shard:int}.xml", self.serve_sitemap),
        ]

    def serve_browse(self, request: Request) -> Reply:
        records = self.list_records()
        tags = sorted(self._group_records()["tag"])
        links = "".join(f'<a class="badge" href="/tags/{tag}">{escape(tag)}</a>' for tag in tags)
        body = f"<h1>MCP Servers</h1><nav>{links}</nav>{make_cards(records[:_SHOWN])}"
        return reply_html(make_shell("MCP Servers | MCPHub", "", body), last=True)

    def serve_group(self, request: Request, by: str) -> Reply:
        """The cards of everything by an author or of a tag, or 404."""
        name = request.path_params["name"]
        if not (found := self._group_records()[by].get(name)):
            return _reply_missing()
        body = f"<h1>{escape(name)}</h1>{make_cards(found)}"
        return reply_html(make_shell(f"{escape(name)} | MCPHub", "", body))

    def serve_server(self, request: Request) -> Reply:
        records = self.list_records()
        position = self._find_position(records, request)
        if position is None:
            return _reply_missing()
        # The next ones in order: so that every server is related to one before it.
        near = {(position + step) % len(records) for step in (1, 2, 3)} - {position}
        streams = not self.fault_set().is_on("layout")
        return reply_html(
            make_page(records[position], [records[one] for one in sorted(near)], streams)
        )

    def serve_sitemap_index(self, request: Request) -> Reply:
        if self.fault_set().is_on("no_sitemap"):
            return _reply_missing()
        base = f"{request.url.scheme}://{request.url.netloc}"
        shards = max(1, -(-len(self.list_records()) // _SHARD))
        own = [f"{base}/sitemap.xml"] if self.fault_set().is_on("cursor_loop") else []
        return sitemap.make_index([*own, *(f"{base}/sitemap/{n}.xml" for n in range(shards))])

    def serve_sitemap(self, request: Request) -> Reply:
        if self.fault_set().is_on("no_sitemap"):
            return _reply_missing()
        base = f"{request.url.scheme}://{request.url.netloc}"
        records, shard = self.list_records(), request.path_params["shard"]
        here = records[shard * _SHARD : (shard + 1) * _SHARD]
        found = [(f"{base}/mcp-servers/{one.namespace}/{one.slug}", one.revised_at) for one in here]
        static: list[sitemap.Location] = [] if shard else [(f"{base}/mcp-servers", None)]
        last = (shard + 1) * _SHARD >= len(records)
        return sitemap.make_urls([*static, *found], last=last, tag=self.name_member("loc"))

    def _find_position(self, records: RecordList, request: Request) -> int | None:
        position = records.find_position(request.path_params["slug"])
        if position is None or records[position].namespace != request.path_params["author"]:
            return None
        return position

    def _group_records(self) -> dict[str, _Groups]:
        """The records of the present list by author, and the first few by tag."""
        records = self.list_records()
        if self._grouped is None or self._grouped[0] is not records:
            authors: _Groups = {}
            tags: _Groups = {}
            for record in records:
                authors.setdefault(record.namespace, []).append(record)
                for tag in record.tags:
                    if len(shown := tags.setdefault(tag, [])) < _SHOWN:
                        shown.append(record)
            self._grouped = (records, {"author": authors, "tag": tags})
        return self._grouped[1]


def _reply_missing() -> Reply:
    return reply_html(make_shell("Not found | MCPHub", "", "<h1>404</h1>"), 404)
