"""Mcpso: mcp.so, from its sitemap to each server's page.

Where the 2026 page holds a config is not known; so every rule of `page_facts.py` is tried on the
page's source, then on the rendered page, the rule that matched is kept as evidence, and a fallen
hit rate is an error (`crawl/crawl.py`).
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

from assets.marketplaces.adapters.records import SitemapAdapter
from assets.marketplaces.crawl.sitemap import parse_locations
from assets.marketplaces.launch.js_literal import find_object
from assets.marketplaces.launch.mcp_config import (
    get_member,
    is_of_a_forge,
    make_server_listings,
    make_unrunnable,
    read_bundle_facts,
    read_text,
)
from assets.marketplaces.launch.page_facts import CodeBlockParser, find_config, find_configs
from assets.marketplaces.listing import Listing
from assets.marketplaces.payload import FIX
from assets.marketplaces.policy import CrawlError, FetchPage, RecordPage, RecordRef

SITE = "mcp.so"


class McpSoAdapter(SitemapAdapter):
    """Pages of an HTML marketplace in mcp.so's shape."""

    name: ClassVar[str] = "mcpso"
    ready: ClassVar[str] = "pre, code, a[href$='.mcpb']"
    undated: ClassVar[str] = "listed"

    def read_id(self, url: str) -> str | None:
        """The slug of `…/servers/<slug>`; None for translated pages (/zh/servers/…, /zh-CN/…)."""
        before, _, slug = _split(url).path.strip("/").rpartition("/")
        language, _, section = before.rpartition("/")
        translated = len(language.rpartition("/")[2]) in (2, 5)
        return unquote(slug) if section == "servers" and slug and not translated else None

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        base = self.policy.base_url.rstrip("/")
        index = await get(f"{base}/sitemap.xml", parse_locations)
        section = {loc: parse_qs(_split(loc).query).get("section") for loc, _ in index}
        children = sorted(loc for loc, sections in section.items() if sections == ["servers"])
        if not children:
            problem = f"a sitemap index of {len(index)} entries, none of servers"
            raise CrawlError(
                "layout_changed", f"{base}/sitemap.xml", problem, "section=servers", FIX
            )
        for number, child in enumerate(children, 1):
            entries = await get(child, parse_locations)
            yield RecordPage(self.list_pages(entries), ended=number == len(children))

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """One listing, or one per server where the page's config names several."""
        html, rendered = str(get_member(raw, "html")), str(get_member(raw, "rendered") or "")
        page, facts = CodeBlockParser(html), find_object(html, "server", having="slug")
        heading = page.find_first("h1")
        if facts is None and not heading:
            raise ValueError("the page has neither its server object nor a heading")
        identity = _make_identity(facts or {}, heading, ref)
        config, where = next(find_configs(page), None), "source"
        if config is None and rendered:
            config, where = find_config(rendered), "rendered"
        if config is None:
            return [Listing(**identity, **make_unrunnable("the page shows no config"))]
        evidence = f"{where}:{config.rule}"
        if config.bundle:
            launch = read_bundle_facts(urljoin(ref.url, config.bundle), config.sha256)
            return [Listing(**identity, **launch, evidence=evidence)]
        return make_server_listings(identity, config.servers, evidence)


def _make_identity(facts: Mapping[str, Any], heading: Any, ref: RecordRef) -> dict[str, Any]:
    links_stated = [read_text(facts.get(key)) for key in ("github", "repository")]
    linked = read_text(facts.get("url"))
    links = [*links_stated, linked if is_of_a_forge(linked) else ""]
    return {
        "marketplace": McpSoAdapter.name,
        "native_id": ref.native_id,
        "name": read_text(facts.get("name")) or read_text(heading) or ref.native_id,
        "description": read_text(facts.get("description")),
        "repository": next((link for link in links if "://" in link), None),
        "updated_at": read_text(facts.get("updatedAt")) or (None if ref.weak else ref.revision),
    }


def _split(url: str) -> Any:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
