"""Mcphub: mcphub.com (not mcphub.tools, .ai or .io), from its pages alone.

The site's own config goes through its gateway and needs an account there. A README's `mcpServers`
that starts a package of the same server is preferred, because it can be run; what was passed over
is said in `evidence`. A README that shows another server's package is no evidence for this one.
"""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.crawl.sitemap import Location, SiteWalk, parse_locations
from assets.marketplaces.launch.mcp_config import (
    get_member,
    make_server_listings,
    make_unrunnable,
    read_captured,
    read_launch_facts,
    read_text,
)
from assets.marketplaces.launch.page_facts import CodeBlockParser, PageLaunchFacts, find_configs
from assets.marketplaces.listing import Listing
from assets.marketplaces.payload import FIX, parse_json, read_html
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

GATEWAY = "api.mcphub.com"


def choose_config(
    configs: list[PageLaunchFacts], native_id: str
) -> tuple[PageLaunchFacts, PageLaunchFacts | None]:
    """(the config to list, the gateway it is preferred to)."""
    gateway = next((config for config in configs if config.part or _is_gateway(config)), None)
    if gateway is None:
        return configs[0], None
    names = f"{native_id} {' '.join(gateway.servers)}"
    for item in configs:
        if item is not gateway and not _is_gateway(item) and _starts_named_package(item, names):
            return item, gateway
    return gateway, None


def _is_gateway(config: PageLaunchFacts) -> bool:
    entries = [entry for entry in config.servers.values() if isinstance(entry, Mapping)]
    return any(f"//{GATEWAY}/" in str(entry.get("url")) for entry in entries)


def _starts_named_package(config: PageLaunchFacts, names: str) -> bool:
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
READY = "pre"  # what shows that a rendered page is filled in
_LINKED = "linked"  # the revision of a page of which only the address is known
_SERVER = re.compile(r"/mcp-servers/([^/?#]+)/([^/?#]+)/?")
_BROWSED = re.compile(r"/mcp-servers(?:/[^/?#]+)?/?|/tags/[^/?#]+/?")
# Why there is no sitemap to read: the walk is then the only way.
_NO_SITEMAP = ("http_status", "wrong_type", "missing_key", "empty", "truncated")
_XML = re.compile(r"\.xml(?:[?#]|$)")
_FORGE = re.compile(r"https?://(?:www\.)?(?:github|gitlab|bitbucket)\.(?:com|org)/[^/]+/[^/#?]+/?")


class McpHubAdapter(MarketplaceAdapter):
    """Pages of mcphub.com as they were in September 2025."""

    name: ClassVar[str] = "mcphub"
    alarm: ClassVar[bool] = True
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence(
            "guessed", "a sitemap, else links from /mcp-servers; neither was seen"
        ),
        "paging": FactEvidence(
            "guessed", "no paging was found; authors, tags and cards are walked"
        ),
        "name": FactEvidence("captured", "<h1> author/name of one page, 2025-09"),
        "launch": FactEvidence(
            "captured", "div#S:0 > pre of one page, 2025-09; README <pre> blocks"
        ),
        "updated_at": FactEvidence("captured", "meta article:modified_time of one page, 2025-09"),
        "repository": FactEvidence("guessed", "the first link to a forge that names the server"),
    }

    async def refs(self, get: FetchPage, since: str | None = None) -> AsyncIterator[RecordPage]:
        base = self.policy.base_url.rstrip("/")
        index, nested = f"{base}/sitemap.xml", False
        entries = await _read_sitemap(get, index)
        found = refs = _list_refs(entries)
        if refs:
            yield RecordPage(refs)
        for url in _list_sitemaps(entries):
            entries = await get(url, parse_locations)
            nested |= url != index and bool(_list_sitemaps(entries))
            refs = _list_refs(entries)
            found = found or refs
            yield RecordPage(refs)
        if found:
            yield RecordPage([], ended=not nested, truncated=nested)
            return
        async for page in self._walk_site(base, get):
            yield page

    async def _walk_site(self, base: str, get: FetchPage) -> AsyncIterator[RecordPage]:
        """Breadth first over the site's own links. Its end proves nothing: a server that nothing
        links to is not seen."""
        walk = SiteWalk(f"{base}/mcp-servers")
        for _ in range(self.policy.page_cap):
            url = walk.next()
            if url is None:
                break
            ref = _make_ref(url, None)
            try:
                html = await get(url, read_html, ref=ref)
            except CrawlError as error:
                if error.kind not in ("http_status", "robots") or url == walk.start:
                    raise
                if ref is None:  # a server's own page is a row when its record is read
                    yield RecordPage([], problems=[make_problem("", url, error.kind, str(error))])
                continue
            linked = walk.add(html, url, (_SERVER, _BROWSED))
            yield RecordPage(_list_refs([(item, None) for item in linked]), truncated=True)

    async def detail(self, ref: RecordRef, get: FetchPage, render: RenderPage) -> Any:
        """{"html", "rendered"}: the page's source, and its rendered form only where the source
        holds no config."""
        raw = {"html": await get(ref.url, read_html, ref=ref), "rendered": None}
        if next(find_configs(CodeBlockParser(raw["html"])), None) is None:
            raw["rendered"] = await render(ref.url, ready=READY, ref=ref)
        return raw

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one page, or one per server where its config names several."""
        if isinstance(raw, Mapping) and isinstance(raw.get("servers"), Mapping):
            identity = _make_identity(CodeBlockParser(""), ref) | {
                "name": read_text(raw.get("name")) or ref.native_id,
                "description": read_text(raw.get("description")),
            }
            return make_server_listings(identity, raw["servers"], "config")
        html, rendered = str(get_member(raw, "html")), str(get_member(raw, "rendered") or "")
        page = CodeBlockParser(html)
        if not page.find_first("h1"):
            raise ValueError("the page has no heading")
        identity, where = _make_identity(page, ref), "source"
        configs = [config for config in find_configs(page) if config.servers]
        if not configs and rendered:
            where = "rendered"
            configs = [
                config for config in find_configs(CodeBlockParser(rendered)) if config.servers
            ]
        if not configs:
            return [Listing(**identity, **make_unrunnable("the page shows no config"))]
        chosen, passed_over = choose_config(configs, identity["native_id"])
        evidence = f"{where}:{_describe_place(chosen)}"
        server_listings = make_server_listings(identity, chosen.servers, evidence)
        if passed_over is None:
            return server_listings
        note = f" (preferred to the gateway of {where}:{_describe_place(passed_over)})"
        return [
            item.model_copy(update={"evidence": item.evidence + note}) for item in server_listings
        ]

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """A server's page, or the gateway config that it holds."""
        if "html" not in page.content_type:
            return read_captured(parse_json(page), page.url, GATEWAY)
        text = read_html(page)
        blocks = CodeBlockParser(text)
        own = {SITE, f"www.{SITE}", urlsplit(self.policy.base_url).hostname}
        titled = (blocks.find_first("title") or "").rstrip().endswith("| MCPHub")
        if (blocks.host not in own) if blocks.host else not titled:
            found = f"a page of {blocks.host or 'another site'}"
            raise CrawlError("missing_key", page.url, found, f"a server's page of {SITE}", FIX)
        heading = re.sub(r"\s+", "", blocks.find_first("h1") or "")
        ref = _make_ref(blocks.canonical, None)
        if ref is None and heading.count("/") != 1:
            found = f"a page headed {heading[:60]!r}"
            raise CrawlError("missing_key", page.url, found, "a page headed author/name", FIX)
        native_id = ref.native_id if ref else heading
        url = blocks.canonical or PurePosixPath(page.url).name
        return [RecordRef(native_id, url, None, {"html": text, "rendered": None})]


async def _read_sitemap(get: FetchPage, url: str) -> list[Location]:
    try:
        return await get(url, parse_locations)
    except CrawlError as error:
        if error.kind not in _NO_SITEMAP or error.status in (401, 403, 429):
            raise
        return []


def _list_sitemaps(entries: list[Location]) -> list[str]:
    """The sitemaps that a sitemap names."""
    return sorted({loc for loc, _ in entries if _XML.search(loc)})


def _list_refs(entries: list[Location]) -> list[RecordRef]:
    return [ref for loc, lastmod in entries if (ref := _make_ref(loc, lastmod))]


def _make_ref(url: str, lastmod: str | None) -> RecordRef | None:
    """The ref `author/name` of a server's page; None for any other page."""
    try:
        match = _SERVER.fullmatch(urlsplit(url).path)
    except ValueError:
        return None
    if match is None:
        return None
    native_id = f"{unquote(match[1])}/{unquote(match[2])}"
    return RecordRef(native_id, url, lastmod or _LINKED, weak=lastmod is None)


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


def _describe_place(found: PageLaunchFacts) -> str:
    return f"{found.rule} of {found.part}" if found.part else found.rule
