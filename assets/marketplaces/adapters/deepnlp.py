"""Deepnlp: DeepNLP's `/api/mcp_marketplace/v1`, a list by page number and a page per server.

The list names no launch facts. A server's page holds a list of `mcpServers` objects, which may be
empty; the marketplace's own client takes the first, and so does this adapter unless only a later
one can be run. Of a server that cannot be launched, its page of tools is asked for as well: nothing
else will ever tell them.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from assets.marketplaces.adapters.records import cut_list, list_refs
from assets.marketplaces.launch.js_literal import NotALiteral, read_all
from assets.marketplaces.launch.mcp_config import (
    THIN,
    find_config_servers,
    is_of_a_forge,
    make_server_listings,
    make_unrunnable,
    read_captured,
    read_launch_facts,
    read_text,
    record_digest,
)
from assets.marketplaces.listing import Listing, dump_tools
from assets.marketplaces.payload import FIX, check_json_list, parse_json, parse_json_object
from assets.marketplaces.policy import (
    CrawlError,
    FactEvidence,
    FetchedPage,
    FetchPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
    RenderPage,
)
from assets.marketplaces.server_json.inputs import as_object
from warehouse.item_failure import try_item

_API = "/api/mcp_marketplace/v1"
_COUNT = 100
_NAMELESS = "the item has no `id`"
_OF_THE_SITE = ("unreachable", "rate_limited")  # kinds that the next request would meet too


class DeepNlpAdapter(MarketplaceAdapter):
    """The marketplace as its own client reads it."""

    name: ClassVar[str] = "deepnlp"
    alarm: ClassVar[bool] = True
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence("documented", "the client's README and a stored page, 2025-12-23"),
        "paging": FactEvidence(
            "documented", "page_id and count_per_page, the client's source, 2025"
        ),
        "launch": FactEvidence("documented", "items[0].config of /v1/server, README of 2025-12-23"),
        "name": FactEvidence("documented", "content_name, README of 2025-12-23"),
        "repository": FactEvidence("guessed", "`website` where it is of a forge"),
        "tools": FactEvidence("documented", "/v1/tools of the client's README of 2025-12-23"),
    }

    async def refs(self, get: FetchPage, since: str | None = None) -> AsyncIterator[RecordPage]:
        seen: set[str] = set()
        shown = 0
        for number in range(self.policy.page_cap + 1):
            query = urlencode({"mode": "list", "page_id": number, "count_per_page": _COUNT})
            url = f"{self._make_root()}?{query}"
            body = await get(url, check_json_list("items", empty_is_fine=number > 0))
            refs, problems = list_refs(body["items"], url, self._make_ref, _NAMELESS)
            new = {ref.native_id for ref in refs} - seen
            seen |= new
            total, items = _read_number(body.get("total_hits")), len(body["items"])
            shown += items
            if items and not new and not problems:
                fault = f"page {number} repeats the pages before it"
                yield cut_list(RecordPage([]), url, "cursor_loop", fault)
                return
            over = not items or (items < _COUNT if total is None else shown >= total)
            short = not items and total is not None and shown < total
            yield RecordPage(refs, ended=over and not short, problems=problems, truncated=short)
            if over:
                return

    async def detail(self, ref: RecordRef, get: FetchPage, render: RenderPage) -> Any:
        """The server's own page, with `tools` of its page of tools where that was asked for."""
        owner, _, repo = ref.native_id.partition("/")
        owner, repo = (quote(part, safe="", errors="replace") for part in (owner, repo))
        url = f"{self._make_root()}/server/{owner}/{repo}"
        raw = await get(url, lambda page: parse_json_object(page, "items"), ref=ref)
        if not try_item(lambda: self._lacks_tools(raw, ref), lambda _: False):
            return raw
        url = f"{self._make_root()}/tools/{owner}/{repo}"
        try:
            shown = await get(url, lambda page: parse_json_object(page, "tools"), ref=ref)
        except CrawlError as error:
            if error.kind in _OF_THE_SITE:
                raise
            return raw  # the listing stays without its tools
        return {**raw, "tools": shown["tools"]}

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """Listings of a server's page {items: [{config}]}, of an item of the list, or of a config
        saved apart."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        if isinstance(raw.get("servers"), Mapping):
            identity = _make_identity({"content_name": raw.get("name")}, ref)
            return make_server_listings(identity, raw["servers"], "config")
        items = raw.get("items", [raw])
        if not isinstance(items, list) or not items or not isinstance(items[0], Mapping):
            why = make_unrunnable("the server's own page is empty")
            return [Listing(**_make_identity({}, ref), **why)]
        item = items[0]
        identity = _make_identity(item, ref) | {"tools": _dump_shown_tools(raw, item)}
        if "items" not in raw and "config" not in item:
            return [Listing(**identity, **make_unrunnable(THIN))]
        at, servers = _choose_config(item.get("config"))
        if servers is None:
            return [Listing(**identity, **make_unrunnable("the server's own page holds no config"))]
        if len(servers) > 1:
            del identity["tools"]  # of one of them, and nothing says of which
        return make_server_listings(identity, servers, f"items[0].config[{at}]")

    def _lacks_tools(self, raw: Any, ref: RecordRef) -> bool:
        """Whether a server's own page has neither a launch nor a tool."""
        found = self.parse(raw, ref) if raw["items"] else []
        return bool(found) and not any(item.runnable or item.tools for item in found)

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """The list, a server's page, or a config that it held."""
        body = parse_json(page)
        items = as_object(body).get("items")
        if not isinstance(items, list):
            return read_captured(body, page.url)
        if "query" not in body and "id" in body:  # a server's own page names the server
            first = items[0] if items and isinstance(items[0], Mapping) else {}
            native_id = read_text(first.get("id")) or read_text(body["id"])
            if native_id and (not first or "content_name" in first or "config" in first):
                return [RecordRef(native_id.strip("/"), page.url, None, dict(body))]
        refs, _ = list_refs(items, page.url, self._make_ref, _NAMELESS)
        if not items or len(refs) < len(items) or not all("content_name" in item for item in items):
            found = f"a list of {len(items)} items, not all with `id` and `content_name`"
            raise CrawlError("missing_key", page.url, found, "items of DeepNLP", FIX)
        return [
            RecordRef(one.native_id, one.url, None, dict(item))
            for one, item in zip(refs, items, strict=True)
        ]

    def _make_root(self) -> str:
        base = self.policy.base_url.rstrip("/")
        return base if base.endswith(_API) else base + _API

    def _make_ref(self, item: Any, _: str) -> RecordRef | None:
        """The digest of what the list shows is a weak revision."""
        native_id = as_object(item).get("id")
        native_id = native_id.strip(" /") if isinstance(native_id, str) else ""
        if not native_id:
            return None
        page = f"{self._make_root()}/server/{quote(native_id, errors='replace')}"
        steady = {key: item[key] for key in item if key not in ("rating", "review_cnt")}
        return RecordRef(native_id, page, record_digest(steady), weak=True)


def _dump_shown_tools(raw: Mapping[str, Any], item: Mapping[str, Any]) -> str | None:
    return dump_tools(raw.get("tools")) or dump_tools(as_object(item.get("ext_info")).get("tools"))


def _choose_config(configs: Any) -> tuple[int, dict[str, Any] | None]:
    """(position, members of `mcpServers`) of the first config, or of a later one that alone can be
    run."""
    listed = configs if isinstance(configs, list) else [configs]
    found = [(at, servers) for at, one in enumerate(listed) if (servers := _read_config(one))]
    for at, servers in found:
        if any(read_launch_facts(entry)["runnable"] for entry in servers.values()):
            return at, servers
    return found[0] if found else (0, None)


def _read_config(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = read_all(value)
        except NotALiteral:
            return None
    return find_config_servers(value)


def _make_identity(item: Mapping[str, Any], ref: RecordRef) -> dict[str, Any]:
    website = read_text(item.get("website"))
    texts = (item.get(key) for key in ("description", "content_description", "content"))
    return {
        "marketplace": DeepNlpAdapter.name,
        "native_id": ref.native_id,
        "name": read_text(item.get("content_name")) or ref.native_id,
        "description": next((read_text(text) for text in texts if read_text(text)), ""),
        "repository": website if is_of_a_forge(website) else None,
    }


def _read_number(value: Any) -> int | None:
    """A count that may be a text."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
