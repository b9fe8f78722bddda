"""MCPHub: the replica of mcphub.com: streamed pages that form a graph of links.

The browse page shows a few servers and every tag; no page has a next one. Everything can be
reached through authors, tags and related servers; the sitemap, which can be switched off, is the
short way.
"""

from array import array
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import Reply, in_html
from demo.replicas.site import Site
from demo.sites import sitemap
from demo.sites.mcphub_page import card, page, shell
from demo.world.listing_page import RecordList
from demo.world.record import Record

_SHOWN = 24  # cards on the browse page and on a tag's page
_SHARD = 1000
_TABS = ("quality", "schema", "inspector", "comments")
_Groups = dict[str, "array[int]"]  # name -> positions


class McpHub(Site):
    """No API, no paging."""

    name = "mcphub"
    robots = "User-agent: *\nAllow: /\n"
    _grouped: tuple[Any, tuple[_Groups, _Groups]] | None = None  # and of which world

    def routes(self) -> Sequence[Route]:
        return [
            self.route("/", self.browse),
            self.route("/mcp-servers", self.browse),
            self.route("/mcp-servers/{author}", self.author),
            self.route("/mcp-servers/{author}/{slug}", self.server),
            self.route("/mcp-servers/{author}/{slug}/{tab}", self.tab),
            self.route("/tags/{tag}", self.tag),
            self.route("/sitemap.xml", self.sitemap_index),
            self.route("/sitemap/{shard:int}.xml", self.sitemap),
        ]

    def browse(self, request: Request) -> Reply:
        records = self.records()
        tags = sorted(self._groups()[1])
        links = "".join(f'<a class="badge" href="/tags/{one}">{escape(one)}</a>' for one in tags)
        body = f"<h1>MCP Servers</h1><nav>{links}</nav>{self._cards(records[:_SHOWN])}"
        return in_html(shell("MCP Servers | MCPHub", "", body), last=True)

    def author(self, request: Request) -> Reply:
        """Everything of one author, or 404."""
        name, records = request.path_params["author"], self.records()
        found = [records[position] for position in self._groups()[0].get(name, ())]
        if not found:
            return _missing()
        body = f"<h1>{escape(name)}</h1>{self._cards(found)}"
        return in_html(shell(f"{escape(name)} | MCPHub", "", body))

    def tag(self, request: Request) -> Reply:
        name, records = request.path_params["tag"], self.records()
        found = [records[position] for position in self._groups()[1].get(name, ())]
        if not found:
            return _missing()
        body = f"<h1>{escape(name)}</h1>{self._cards(found)}"
        return in_html(shell(f"{escape(name)} | MCPHub", "", body))

    def server(self, request: Request) -> Reply:
        records = self.records()
        position = self._position(records, request)
        if position is None:
            return _missing()
        # The next ones in order: so that every server is related to one before it.
        near = {(position + step) % len(records) for step in (1, 2, 3)} - {position}
        streams = not self.fault_set().on("layout")
        return in_html(page(records[position], [records[one] for one in sorted(near)], streams))

    def tab(self, request: Request) -> Reply:
        records, tab = self.records(), request.path_params["tab"]
        position = self._position(records, request)
        if position is None or tab not in _TABS:
            return _missing()
        record = records[position]
        rows = "".join(f"<li>{escape(name)}</li>" for name in record.tools)
        body = f"<h1>{escape(record.title)}</h1><h2>{tab}</h2><ul>{rows}</ul>"
        return in_html(shell(f"{escape(record.title)} | MCPHub", "", body))

    def sitemap_index(self, request: Request) -> Reply:
        if self.fault_set().on("no_sitemap"):
            return _missing()
        base = f"{request.url.scheme}://{request.url.netloc}"
        shards = max(1, -(-len(self.records()) // _SHARD))
        own = [f"{base}/sitemap.xml"] if self.fault_set().on("cursor_loop") else []
        return sitemap.index([*own, *(f"{base}/sitemap/{n}.xml" for n in range(shards))])

    def sitemap(self, request: Request) -> Reply:
        if self.fault_set().on("no_sitemap"):
            return _missing()
        base = f"{request.url.scheme}://{request.url.netloc}"
        records, shard = self.records(), request.path_params["shard"]
        here = records[shard * _SHARD : (shard + 1) * _SHARD]
        found = [(f"{base}/mcp-servers/{one.namespace}/{one.slug}", one.revised_at) for one in here]
        static: list[sitemap.Location] = [] if shard else [(f"{base}/mcp-servers", None)]
        last = (shard + 1) * _SHARD >= len(records)
        return sitemap.urls([*static, *found], last=last, tag=self.key("loc"))

    def _position(self, records: RecordList, request: Request) -> int | None:
        position = records.position(request.path_params["slug"])
        if position is None or records[position].namespace != request.path_params["author"]:
            return None
        return position

    def _groups(self) -> tuple[_Groups, _Groups]:
        """Positions by author, and the first few by tag, of the present list."""
        now = (self.world(), self.fault_set())
        if self._grouped is None or any(
            one is not other for one, other in zip(now, self._grouped[0], strict=True)
        ):
            authors: _Groups = {}
            tags: _Groups = {}
            for position, record in enumerate(self.records()):
                authors.setdefault(record.namespace, array("I")).append(position)
                for tag in record.tags:
                    if len(shown := tags.setdefault(tag, array("I"))) < _SHOWN:
                        shown.append(position)
            self._grouped = (now, (authors, tags))
        return self._grouped[1]

    def _cards(self, records: Iterable[Record]) -> str:
        return "".join(card(record) for record in records)


def _missing() -> Reply:
    return in_html(shell("Not found | MCPHub", "", "<h1>404</h1>"), 404)
