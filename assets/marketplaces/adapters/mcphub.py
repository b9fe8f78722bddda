"""Mcphub: mcphub.com (not mcphub.tools, .ai or .io), from its pages alone.

The site's own config goes through its gateway and needs an account there. A README's `mcpServers`
that starts a package of the same server is preferred, because it can be run. A README that shows
another server's package is no evidence for this one.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from assets.marketplaces.adapters.records import SitemapAdapter
from assets.marketplaces.crawl.sitemap import Location, parse_locations
from assets.marketplaces.launch.mcp_config import (
    get_member,
    make_server_listings,
    make_unrunnable,
    read_launch_facts,
    read_text,
)
from assets.marketplaces.launch.page_facts import CodeBlockParser, PageLaunchFacts, find_configs
from assets.marketplaces.listing import Listing
from assets.marketplaces.payload import FIX
from assets.marketplaces.policy import CrawlError, FetchPage, RecordPage, RecordRef

GATEWAY = "api.mcphub.com"


def choose_config(configs: list[PageLaunchFacts], native_id: str) -> PageLaunchFacts:
    """The config to list: one that starts a package of this server before the site's gateway."""
    gateway = next((config for config in configs if config.part or _is_gateway(config)), None)
    if gateway is None:
        return configs[0]
    names = f"{native_id} {' '.join(gateway.servers)}"
    others = (config for config in configs if config is not gateway and not _is_gateway(config))
    return next((config for config in others if _starts_package(config, names)), gateway)


def _is_gateway(config: PageLaunchFacts) -> bool:
    entries = [entry for entry in config.servers.values() if isinstance(entry, Mapping)]
    return any(f"//{GATEWAY}/" in str(entry.get("url")) for entry in entries)


def _starts_package(config: PageLaunchFacts, names: str) -> bool:
    """Whether each server of a config starts a package of the server called `names`."""
    for key, entry in config.servers.items():
        facts = read_launch_facts(entry)
        package = facts.get("package")
        if not facts["runnable"] or package is None or "hosted_gateway" in facts["flags"]:
            return False
        if not is_kin(f"{key} {package.identifier}", names):
            return False
    return True


def is_kin(name: str, names: str) -> bool:
    """Whether two names share a word that tells servers apart."""
    common = {"mcp", "server", "servers", "com", "github", "https", "http", "www", "the", "org",
              "gitlab", "bitbucket", "modelcontextprotocol", "npm", "ai", "io"}  # fmt: skip
    words = [set(re.findall(r"[a-z0-9]{2,}", text.lower())) - common for text in (name, names)]
    return bool(words[0] & words[1])


SITE = "mcphub.com"
_SERVER = re.compile(r"/mcp-servers/([^/?#]+)/([^/?#]+)/?")
_XML = re.compile(r"\.xml(?:[?#]|$)")
_FORGE = re.compile(r"https?://(?:www\.)?(?:github|gitlab|bitbucket)\.(?:com|org)/[^/]+/[^/#?]+/?")


class McpHubAdapter(SitemapAdapter):
    """Pages of mcphub.com as they were in September 2025."""

    name: ClassVar[str] = "mcphub"
    ready: ClassVar[str] = "pre"
    undated: ClassVar[str] = "linked"

    def read_id(self, url: str) -> str | None:
        """The id `author/name`."""
        try:
            match = _SERVER.fullmatch(urlsplit(url).path)
        except ValueError:
            return None
        return f"{unquote(match[1])}/{unquote(match[2])}" if match else None

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        base = self.policy.base_url.rstrip("/")
        index, nested = f"{base}/sitemap.xml", False
        entries = await get(index, parse_locations)
        servers = refs = self.list_pages(entries)
        if refs:
            yield RecordPage(refs)
        for url in _list_sitemaps(entries):
            entries = await get(url, parse_locations)
            nested |= url != index and bool(_list_sitemaps(entries))
            refs = self.list_pages(entries)
            servers = servers or refs
            yield RecordPage(refs)
        if not servers:
            problem = "sitemaps that name no server"
            raise CrawlError("layout_changed", index, problem, "addresses of servers", FIX)
        yield RecordPage([], ended=not nested, truncated=nested)

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one page, or one per server where its config names several."""
        html, rendered = str(get_member(raw, "html")), str(get_member(raw, "rendered") or "")
        page = CodeBlockParser(html)
        if not page.find_first("h1"):
            raise ValueError("the page has no heading")
        identity, where = _make_identity(page, ref), "source"
        configs = [config for config in find_configs(page) if config.servers]
        if not configs and rendered:
            where, blocks = "rendered", CodeBlockParser(rendered)
            configs = [config for config in find_configs(blocks) if config.servers]
        if not configs:
            return [Listing(**identity, **make_unrunnable("the page shows no config"))]
        config = choose_config(configs, identity["native_id"])
        place = f"{config.rule} of {config.part}" if config.part else config.rule
        return make_server_listings(identity, config.servers, f"{where}:{place}")


def _list_sitemaps(entries: list[Location]) -> list[str]:
    """The sitemaps that a sitemap names."""
    return sorted({loc for loc, _ in entries if _XML.search(loc)})


def _make_identity(page: CodeBlockParser, ref: RecordRef) -> dict[str, Any]:
    heading = re.sub(r"\s+", "", page.find_first("h1") or "") or ref.native_id
    title, by, _ = (page.find_first("title") or "").partition(" by ")
    name = title if by else heading.rpartition("/")[2]
    mine = [link for link in page.links if _FORGE.fullmatch(link) and is_kin(link, ref.native_id)]
    return {
        "marketplace": McpHubAdapter.name,
        "native_id": ref.native_id,
        "name": read_text(name) or ref.native_id,
        "description": read_text(page.meta.get("description")),
        "repository": read_text(mine[0]).rstrip("/") if mine else None,
        "updated_at": page.meta.get("article:modified_time")
        or (None if ref.weak else ref.revision),
    }
