"""Mcpso: mcp.so, from its sitemap to each server's page.

What belongs here: the sitemaps, the page's own object and which source of the page is read first.
What does not: finding a config in HTML (`page.py`) and what it means (`config.py`).

Evidence: captured (sitemap shape 2026-07, page object 2026-09). Guessed: where the 2026 page holds
a config; so every rule of `page.py` is tried on the page's source, then on the rendered page, the
rule that matched is kept as evidence, and a low hit rate is an error (`crawl.py`).
"""

import json
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urljoin, urlsplit
from urllib.robotparser import RobotFileParser
from xml.etree.ElementTree import Element, ParseError, fromstring

from assets.marketplaces.config import bundle_facts, launch_facts, unrunnable
from assets.marketplaces.http import Page
from assets.marketplaces.jsobject import find_object
from assets.marketplaces.listing import Listing
from assets.marketplaces.page import Blocks, Found, find_config
from assets.marketplaces.policy import CrawlError, CrawlPolicy, Get, Ref, RefPage, Render, problem
from assets.marketplaces.redact import MARK, redact, redact_json

READY = "pre, code, a[href$='.mcpb']"  # what shows that a rendered page is filled in
_MEND = "yesterday's listings stay; if the site changed, the adapter needs a new fixture"


class McpSoAdapter:
    """Pages of an HTML marketplace in mcp.so's shape."""

    name: ClassVar[str] = "mcpso"

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy

    def refs(self, get: Get, since: str | None = None) -> Iterator[RefPage]:
        base = self.policy.base_url.rstrip("/")
        allowed = _robots(get(f"{base}/robots.txt", check_robots))
        index = locations(get(f"{base}/sitemap.xml", check_sitemap))
        children = [
            loc for loc, _ in index if parse_qs(urlsplit(loc).query).get("section") == ["servers"]
        ]
        if not children:
            found = f"a sitemap index of {len(index)} entries, none of servers"
            raise CrawlError(
                "layout_changed", f"{base}/sitemap.xml", found, "section=servers", _MEND
            )
        for number, child in enumerate(sorted(children), 1):
            refs, problems = [], []
            for loc, lastmod in locations(get(child, check_sitemap)):
                slug = _slug(loc)
                if slug is None:
                    continue
                if not allowed.can_fetch(self.policy.user_agent, loc):
                    problems.append(problem(slug, loc, "robots", "robots.txt forbids the page"))
                else:
                    refs.append(Ref(slug, loc, lastmod))
            yield RefPage(refs, number == len(children), problems)

    def detail(self, ref: Ref, get: Get, render: Render) -> Any:
        """{"html", "rendered"}: the page's source, and its rendered form only where the source
        holds no config."""
        html = get(ref.url, check_page, revision=ref.revision).decode()
        raw = {"html": html, "rendered": None}
        if find_config(html) is None:
            raw["rendered"] = render(ref.url, ready=READY, revision=ref.revision)
        return raw

    def parse(self, raw: Any, ref: Ref) -> list[Listing]:
        """One listing, or one per server where the page's config names several."""
        html, rendered = raw["html"], raw.get("rendered")
        facts = find_object(html, "server")
        heading = Blocks(html).first("h1")
        if facts is None and not heading:
            raise ValueError("the page has neither its server object nor a heading")
        identity = _identity(facts or {}, heading, ref, self.name)
        found, where = find_config(html), "source"
        if found is None and rendered:
            found, where = find_config(rendered), "rendered"
        if found is None:
            return [Listing(**identity, **unrunnable("the page shows no config"))]
        evidence = f"{where}:{found.rule}"
        if found.bundle:
            launch = bundle_facts(urljoin(ref.url, found.bundle), found.sha256)
            return [Listing(**identity, **launch, evidence=evidence)]
        return _listings(identity, found, evidence)


def _listings(identity: dict[str, Any], found: Found, evidence: str) -> list[Listing]:
    several = len(found.servers) > 1
    made = []
    for key, entry in sorted(found.servers.items()):
        launch = launch_facts(entry)
        if several:
            native = f"{identity['native_id']}#{redact(key)}"
            identity = identity | {"native_id": native.replace(MARK, "redacted")}
            launch["flags"] = tuple(sorted({*launch.get("flags", ()), "multi_server"}))
        made.append(Listing(**identity, **launch, evidence=f"{evidence} mcpServers.{redact(key)}"))
        identity = identity | {"native_id": identity["native_id"].partition("#")[0]}
    return made


def _identity(
    facts: dict[str, Any], heading: str | None, ref: Ref, marketplace: str
) -> dict[str, Any]:
    facts = redact_json(facts)
    repository = facts.get("github") or facts.get("repository") or facts.get("url")
    return {
        "marketplace": marketplace,
        "native_id": ref.native_id,
        "name": str(facts.get("name") or heading or ref.native_id),
        "description": str(facts.get("description") or ""),
        "repository": repository if isinstance(repository, str) and "://" in repository else None,
        "updated_at": facts.get("updatedAt") or ref.revision,
    }


def check_sitemap(page: Page) -> bytes:
    """The locations of a sitemap or sitemap index as JSON [[loc, lastmod]], not empty. Raises
    CrawlError where the response is not one."""
    expected = "a sitemap (XML)"
    if "html" in page.content_type:
        found = f"{page.content_type} starting {page.text()[:60]!r}"
        raise CrawlError("wrong_type", page.url, found, expected, _MEND)
    text = page.text()
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise CrawlError("wrong_type", page.url, "XML with a DOCTYPE", expected, _MEND)
    try:
        root = fromstring(text)
    except ParseError as error:
        found = f"XML broken off after {len(page.body):,} bytes ({error})"
        raise CrawlError("truncated", page.url, found, expected, _MEND) from error
    if _local(root) not in ("urlset", "sitemapindex"):
        raise CrawlError("missing_key", page.url, f"<{_local(root)}>", "<urlset>", _MEND)
    entries = [_entry(element) for element in root]
    if not (entries := [entry for entry in entries if entry[0]]):
        found = "an empty sitemap with status 200"
        raise CrawlError("empty", page.url, found, "at least one <loc>", _MEND)
    return json.dumps(entries).encode()


def check_page(page: Page) -> bytes:
    """The redacted HTML of a server's page. Raises CrawlError where it is not HTML or is cut."""
    text = page.text()
    if "html" not in page.content_type:
        raise CrawlError("wrong_type", page.url, page.content_type or "no type", "HTML", _MEND)
    if "</html>" not in text[-2000:].lower() and "<html" in text[:2000].lower():
        found = f"HTML broken off after {len(page.body):,} bytes"
        raise CrawlError("truncated", page.url, found, "a whole page", _MEND)
    return redact(text).encode()


def check_robots(page: Page) -> bytes:
    """The text of robots.txt; an HTML page in its place counts as no rules."""
    return b"" if "html" in page.content_type else page.body


def locations(body: bytes) -> list[tuple[str, str | None]]:
    """(loc, lastmod) pairs as `check_sitemap` stored them."""
    return [(loc, lastmod) for loc, lastmod in json.loads(body)]


def _entry(element: Element) -> tuple[str, str | None]:
    """(loc, lastmod) of one <url> or <sitemap>; hreflang alternates repeat the page and are
    not looked at."""
    texts = {_local(child): (child.text or "").strip() for child in element}
    return texts.get("loc", ""), texts.get("lastmod") or None


def _local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _slug(loc: str) -> str | None:
    """The slug of `…/servers/<slug>`; None for other pages and translated ones."""
    parts = urlsplit(loc).path.strip("/").split("/")
    return unquote(parts[-1]) if len(parts) >= 2 and parts[-2] == "servers" else None


def _robots(body: bytes) -> RobotFileParser:
    rules = RobotFileParser()
    rules.parse(body.decode("utf-8", errors="replace").splitlines())
    return rules
