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
from assets.marketplaces.launch.mcp_config import (
    THIN,
    is_of_a_forge,
    make_server_listings,
    make_unrunnable,
    read_launch_facts,
    read_text,
    record_digest,
)
from assets.marketplaces.launch.page_facts import find_config_in
from assets.marketplaces.listing import Listing, dump_tools
from assets.marketplaces.payload import check_json_list, parse_json_object
from assets.marketplaces.policy import (
    CrawlError,
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

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        names: set[str] = set()
        count = 0
        for number in range(self.policy.page_cap + 1):
            query = urlencode({"mode": "list", "page_id": number, "count_per_page": _COUNT})
            url = f"{self._make_root()}?{query}"
            body = await get(url, check_json_list("items", empty_is_fine=number > 0))
            refs, problems = list_refs(body["items"], url, self._make_ref, _NAMELESS)
            new = {ref.native_id for ref in refs} - names
            names |= new
            total, items = _read_number(body.get("total_hits")), len(body["items"])
            count += items
            if items and not new and not problems:
                fault = f"page {number} repeats the pages before it"
                yield cut_list(RecordPage([]), url, "cursor_loop", fault)
                return
            over = not items or (items < _COUNT if total is None else count >= total)
            short = not items and total is not None and count < total
            yield RecordPage(refs, ended=over and not short, problems=problems, truncated=short)
            if over:
                return

    async def detail(self, ref: RecordRef, get: FetchPage, render: RenderPage) -> Any:
        """The server's own page, with `tools` of its page of tools where the page has neither a
        launch nor a tool."""
        names = (quote(name, safe="", errors="replace") for name in ref.native_id.split("/", 1))
        path = "/".join(names)
        url = f"{self._make_root()}/server/{path}"
        raw = await get(url, lambda page: parse_json_object(page, "items"), ref=ref)
        listings: list[Listing] = try_item(lambda: self.parse(raw, ref), lambda _: [])
        if not raw["items"] or not listings:
            return raw
        if any(item.runnable or item.tools for item in listings):
            return raw
        url = f"{self._make_root()}/tools/{path}"
        try:
            answer = await get(url, lambda page: parse_json_object(page, "tools"), ref=ref)
        except CrawlError as error:
            if error.kind in _OF_THE_SITE:
                raise
            return raw  # the listing stays without its tools
        return {**raw, "tools": answer["tools"]}

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """Listings of a server's page {items: [{config}]}, or of an item of the list."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        items = raw.get("items", [raw])
        if not isinstance(items, list) or not items or not isinstance(items[0], Mapping):
            why = make_unrunnable("the server's own page is empty")
            return [Listing(**_make_identity({}, ref), **why)]
        item = items[0]
        more = as_object(item.get("ext_info")).get("tools")
        tools = dump_tools(raw.get("tools")) or dump_tools(more)
        identity = _make_identity(item, ref) | {"tools": tools}
        if "items" not in raw and "config" not in item:
            return [Listing(**identity, **make_unrunnable(THIN))]
        at, servers = _choose_config(item.get("config"))
        if servers is None:
            return [Listing(**identity, **make_unrunnable("the server's own page holds no config"))]
        if len(servers) > 1:
            del identity["tools"]  # of one of them, and nothing says of which
        return make_server_listings(identity, servers, f"items[0].config[{at}]")

    def _make_root(self) -> str:
        base = self.policy.base_url.rstrip("/")
        return base if base.endswith(_API) else base + _API

    def _make_ref(self, item: Any, _: str) -> RecordRef | None:
        """The digest of what the list shows is a weak revision."""
        native_id = read_text(as_object(item).get("id")).strip(" /")
        if not native_id:
            return None
        page = f"{self._make_root()}/server/{quote(native_id, errors='replace')}"
        steady = {key: item[key] for key in item if key not in ("rating", "review_cnt")}
        return RecordRef(native_id, page, record_digest(steady), weak=True)


def _choose_config(configs: Any) -> tuple[int, dict[str, Any] | None]:
    """(position, members of `mcpServers`) of the first config, or of a later one that alone can be
    run."""
    configs = configs if isinstance(configs, list) else [configs]
    readings = (
        find_config_in(config)
        if isinstance(config, str)
        else as_object(as_object(config).get("mcpServers"))
        for config in configs
    )
    offers = [(at, servers) for at, servers in enumerate(readings) if servers]
    for at, servers in offers:
        if any(read_launch_facts(entry)["runnable"] for entry in servers.values()):
            return at, servers
    return offers[0] if offers else (0, None)


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
