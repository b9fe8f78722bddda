"""The HTML marketplace over real HTTP and a real browser."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx2
import pytest

from assets.marketplaces.crawl.browser import PageBrowser
from assets.marketplaces.crawl.crawl import crawl
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from assets.servers.sandbox.contained_browser import open_browser_sandbox
from demo.server import Replicas
from demo.world.catalogue import make_world
from tests.marketplaces.site import Answer, Site, site

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs Chromium (Debian: apt-get install chromium)"
)

CONFIG = '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "a@1.0.0"]}}}'


@contextmanager
def serve_pages(page: Callable[[str], Answer], slugs: str = "abcd") -> Iterator[Site]:

    def answer(path: str, _: int) -> Answer:
        if path == "/robots.txt":
            return Answer(content_type="text/plain")
        if path.startswith("/sitemap.xml?"):
            urls = "".join(f"<url><loc>{here.url}/servers/{slug}</loc></url>" for slug in slugs)
            return Answer(f"<urlset>{urls}</urlset>", content_type="application/xml")
        if path == "/sitemap.xml":
            loc = f"<loc>{here.url}/sitemap.xml?section=servers&amp;page=1</loc>"
            index = f"<sitemapindex><sitemap>{loc}</sitemap></sitemapindex>"
            return Answer(index, content_type="application/xml")
        return page(path.rsplit("/", 1)[-1])

    with site(answer) as here:
        yield here


def page_with(config: str, slug: str = "x") -> Answer:
    facts = f"const p={{server:$R[1]={{slug:'{slug}',name:'Name of {slug}'}}}}"
    return Answer(f"<html><h1>X</h1><script>{facts}</script><pre>{config}</pre></html>")


@pytest.fixture
def as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that shows each page as it was sent: for what follows from a page without a config,
    which is a core-second less a page."""

    async def render(self: PageBrowser, url: str, ready: str) -> tuple[str, bool]:
        async with httpx2.AsyncClient(trust_env=False) as client:
            return (await client.get(url)).text, True

    monkeypatch.setattr(PageBrowser, "render_html", render)


def switch_to_a_page_of_each_kind(sites: Replicas, day: int) -> None:
    """One server a kind of page: rendering all twelve of the standard scale says nothing more."""
    world = make_world(day, "standard", sites["files"])
    kept = {"notion", "mcp-server-time", "textkit", "shell-syntax", "no-command"}
    sites.switch(world=replace(world, servers=tuple(s for s in world.servers if s.slug in kept)))


def test_pages_are_read_rendered_only_where_the_source_holds_no_config(demo_sites, at, ledger):
    switch_to_a_page_of_each_kind(demo_sites, day=1)
    result = crawl(at("mcpso"), ledger=ledger, run_date="1")
    assert result.completeness == "complete"
    assert {listing.native_id for listing in result.listings} == {
        server.slug for server in demo_sites.world.list_records("mcpso")
    }
    found = {listing.native_id: listing for listing in result.listings}
    assert found["notion"].evidence == "rendered:code mcpServers.notion"
    assert found["mcp-server-time"].evidence.startswith("source:")
    assert found["notion"].package.version == "2.5.2"
    assert [item.name for item in found["notion"].env if item.required] == ["NOTION_TOKEN"]
    assert found["textkit"].package.type == "mcpb"
    assert found["textkit"].package.digest.startswith("sha256:")
    assert "shell syntax" in found["shell-syntax"].reason
    assert "no config" in found["no-command"].reason
    assert ledger.counts()["render", "done"] == len(found) - 1

    # Day two, next run: only list pages.
    switch_to_a_page_of_each_kind(demo_sites, day=2)
    before = sum(demo_sites.count_by_kind("mcpso").values())
    again = crawl(at("mcpso"), ledger=ledger, run_date="2")
    assert again.listings == result.listings
    assert sum(demo_sites.count_by_kind("mcpso").values()) - before == again.requests == 3


@pytest.mark.usefixtures("as_sent")
def test_pages_that_lost_their_config_raise_the_layout_alarm(at, ledger):
    lost = set[str]()
    with serve_pages(lambda slug: page_with("none" if slug in lost else CONFIG, slug)) as here:
        adapters = [at("mcpso", here.url, refresh_days=1e-9) for _ in range(2)]
        assert crawl(adapters[0], ledger=ledger, run_date="1").hit_rate == 1.0
        lost |= {"b", "c", "d"}
        with pytest.raises(CrawlError) as caught:
            crawl(adapters[1], ledger=ledger, run_date="2")
    assert caught.value.kind == "layout_changed"
    assert caught.value.found == "a config in only 1 of 4 records"
    assert "last crawl: 100%" in caught.value.expected


@pytest.mark.usefixtures("as_sent")
def test_a_first_crawl_without_any_config_raises_the_layout_alarm(at, ledger):
    none = serve_pages(lambda slug: page_with("nothing", slug))
    with none as here, pytest.raises(CrawlError, match="only 0 of 4 records"):
        crawl(at("mcpso", here.url), ledger=ledger, run_date="1")


def test_a_page_in_which_nothing_appears_is_left_alone_for_a_while(at, ledger, monkeypatch):
    monkeypatch.setattr("assets.marketplaces.crawl.browser._READY_MS", 500)
    with serve_pages(lambda slug: Answer(f"<html><h1>{slug}</h1></html>"), slugs="a") as here:
        for run_date in ("1", "2"):
            result = crawl(at("mcpso", here.url), ledger=ledger, run_date=run_date)
            assert {listing.reason for listing in result.listings} == {"the page shows no config"}
    # Once for its source and once by the browser; in the second run neither.
    assert here.paths.count("/servers/a") == 2


def test_without_chromium_the_error_says_what_to_install(demo_sites, at, ledger):
    with pytest.raises(CrawlError, match="apt-get install chromium"):
        crawl(at("mcpso", chromium=None), ledger=ledger, run_date="1")


def test_the_browser_asks_no_host_but_the_marketplaces_own():
    html = """<html><body><img src="{0}/pixel.png"><script src="{0}/x.js"></script>
      <script>fetch("{0}/beacon").finally(() => document.body.append(
        Object.assign(document.createElement("pre"), {{textContent: "done"}})));</script></html>"""
    with site(lambda *_: Answer("")) as elsewhere:
        text = html.format(elsewhere.url)
        with site(lambda *_: Answer(text)) as here:
            policy = CrawlPolicy(
                base_url=here.url, allow_loopback=True, contain=open_browser_sandbox
            )

            async def rendered() -> tuple[str, bool, PageBrowser]:
                browser = PageBrowser(policy)
                try:
                    return *await browser.render_html(f"{here.url}/servers/a", "pre"), browser
                finally:
                    await browser.close()

            found, complete, browser = asyncio.run(rendered())
            assert complete
            assert "done" in found
            assert (browser.refused, browser.requests) == ({urlsplit(elsewhere.url).netloc}, 1)
    assert elsewhere.paths == []
