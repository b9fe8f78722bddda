"""MCPHub's pages: the gateway's config, the README's, and a walk over links; mcp.so's pages."""

import asyncio
import json
from html import escape
from typing import Any

import pytest

from assets.marketplaces.adapters.mcphub import McpHubAdapter
from assets.marketplaces.adapters.mcpso import McpSoAdapter
from assets.marketplaces.policy import CrawlError, FetchedPage, RecordRef
from tests.marketplaces.answers import POLICY, Answers, read_inputs
from tests.support.cases import cases

ADAPTER = McpHubAdapter(POLICY)
BASE = POLICY.base_url
ENDPOINT = "https://api.mcphub.com/mcp/acme-quill"
SIGNED = {"url": ENDPOINT, "headers": {"Authorization": "Bearer abcdefgh.ijklmnop"}}
GATEWAY = {"mcpServers": {"quill-mcp": SIGNED}}
HEAD = """<title>Quill by acme - MCP Server | MCPHub</title>
<meta name="description" content="Writes &amp; reads."/>
<meta name="article:modified_time" content="2025-08-31T21:37:12.000Z"/>
<link rel="canonical" href="https://mcphub.com/mcp-servers/acme/quill-mcp"/>"""


def page(readme: str = "", streamed: object = GATEWAY, head: str = HEAD, links: str = "") -> bytes:
    end = (
        f'<div hidden id="S:0"><pre>{escape(json.dumps(streamed))}</pre></div>' if streamed else ""
    )
    return f"""<html><head>{head}</head><body><h1>acme<!-- -->/<!-- -->quill-mcp</h1>
<a href="https://github.com/acme/quill-mcp">source</a>{links}
<h3>Server config via mcphub</h3><div role="alert"><template id="B:0"></template></div>
<div class="prose">{readme}</div>{end}</body></html>""".encode()


def block(*servers: tuple[str, dict[str, Any]]) -> str:
    return f"<pre><code>{escape(json.dumps({'mcpServers': dict(servers)}))}</code></pre>"


def read(body: bytes) -> list[Any]:
    return ADAPTER.parse({"html": body.decode(), "rendered": None}, REF)


REF = RecordRef("acme/quill-mcp", "https://mcphub.com/mcp-servers/acme/quill-mcp")


def test_the_streamed_config_is_the_gateway_and_a_readme_of_the_servers_own_package_preferred():
    (found,) = read(page())
    assert (found.native_id, found.name) == ("acme/quill-mcp", "Quill")
    assert found.description == "Writes & reads."
    assert found.repository == "https://github.com/acme/quill-mcp"
    assert found.updated_at == "2025-08-31T21:37:12.000Z"
    assert (found.transport, found.url) == ("streamable-http", ENDPOINT)
    assert read_inputs(found.headers) == {"Authorization": (True, True, None)}
    assert found.flags == ("hosted_gateway", "needs_account")
    assert found.evidence == "source:pre of S:0 mcpServers.quill-mcp"
    assert "abcdefgh" not in str(found)
    own = block(("quill", {"command": "npx", "args": ["-y", "@acme/quill@1.2.0"]}))
    (found,) = read(page(own))
    assert (found.command, found.url) == ("npx", None)
    assert "hosted_gateway" not in found.flags
    assert found.evidence == "source:code mcpServers.quill"


@cases(
    "entry",
    ("github", {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"]}),
    ("quill", {"command": "node", "args": ["/Users/me/quill/build/index.js"]}),
    ("quill", {"command": "npx", "args": ["mcp-remote", "https://quill.example/mcp"]}),
    ("quill", {"command": "npx", "args": ["-y", "@smithery/cli", "run", "@acme/quill"]}),
)
def test_another_servers_package_and_no_package_are_no_alternative(entry):
    (found,) = read(page(block(entry)))
    assert found.url == ENDPOINT


def test_a_readme_with_several_servers_gives_several_listings_and_a_page_without_config_one():
    two = [(f"quill-{n}", {"command": "uvx", "args": [f"quill-{n}==1.0"]}) for n in "ab"]
    found = read(page(block(*two), streamed=None))
    assert [item.native_id[-8:] for item in found] == ["#quill-a", "#quill-b"]
    assert all("multi_server" in item.flags for item in found)
    (found,) = read(page(streamed=None))
    assert (found.runnable, found.reason) == (False, "the page shows no config")


def xml(*locs: str, kind: str = "urlset") -> FetchedPage:
    rows = "".join(f"<url><loc>{loc}</loc><lastmod>2025-01-01</lastmod></url>" for loc in locs)
    return FetchedPage("s.xml", "application/xml", f"<{kind}>{rows}</{kind}>".encode())


def test_a_sitemap_is_the_whole_list_unless_it_is_one_of_sitemaps_or_empty():
    servers = f"{BASE}/mcp-servers"
    quill = f"{servers}/acme/quill"
    listed, end = Answers({
        f"{BASE}/sitemap.xml": xml(f"{BASE}/sitemap/0.xml", kind="sitemapindex"),
        f"{BASE}/sitemap/0.xml": xml(servers, quill, f"{quill}/schema", f"{BASE}/tags/x"),
    }).listed(ADAPTER)  # fmt: skip
    assert [(ref.native_id, ref.revision) for ref in listed.refs] == [("acme/quill", "2025-01-01")]
    assert end.ended
    end = Answers({
        f"{BASE}/sitemap.xml": xml(f"{BASE}/a.xml", kind="sitemapindex"),
        f"{BASE}/a.xml": xml(f"{BASE}/b.xml", quill),
    }).listed(ADAPTER)[-1]  # fmt: skip
    assert (end.ended, end.truncated) == (False, True)
    with pytest.raises(CrawlError, match="layout_changed"):
        Answers({f"{BASE}/sitemap.xml": xml(f"{BASE}/tags/x")}).listed(ADAPTER)


def test_the_browser_is_asked_only_where_the_source_holds_no_config():
    url, rendered = f"{BASE}/mcp-servers/acme/quill-mcp", list[str]()

    async def render(url: str, *, ready: str, ref: Any = None) -> str:
        rendered.append(url)
        return page().decode()

    ref = RecordRef("acme/quill-mcp", url)
    for streamed, times in ((GATEWAY, 0), (None, 1)):
        answers = Answers({url: FetchedPage(url, "text/html", page(streamed=streamed))})
        raw = asyncio.run(ADAPTER.detail(ref, answers.get, render))
        assert len(rendered) == times
        assert ADAPTER.parse(raw, ref)[0].url == ENDPOINT


# --- mcp.so's pages and sitemaps
MCPSO = McpSoAdapter(POLICY)
BASE = POLICY.base_url
CONFIG: dict[str, Any] = {
    "mcpServers": {"quill": {"command": "npx", "args": ["-y", "quill@1.0.0"]}}
}
FACTS = (
    "const p={server:$R[16]={slug:'quill',previousSlug:'old-quill',name:'Quill',"
    "description:'createdAt: a trap',github:'https://github.com/acme/quill',"
    "createdAt:$R[17]=new Date('2025-07-21T09:03:18.907Z'),"
    "updatedAt:new Date('2026-09-10T10:00:00Z')},related:[{slug:'other'}]};"
)


def mcpso_page(config: object = CONFIG, facts: str = FACTS, head: str = "") -> bytes:
    pre = f"<pre><code>{json.dumps(config)}</code></pre>" if config else ""
    body = f"<h1>QuillVerified</h1><script>{facts}</script>{pre}"
    return f"<html><head>{head}</head>{body}</html>".encode()


def sitemap(*locs: str, lastmod: str = "", index: bool = False) -> FetchedPage:
    outer, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
    mod = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    rows = "".join(f"<{inner}><loc>{loc}</loc>{mod}</{inner}>" for loc in locs)
    return FetchedPage("sitemap.xml", "application/xml", f"<{outer}>{rows}</{outer}>".encode())


def read_mcpso(body: bytes) -> list[Any]:
    return MCPSO.parse({"html": body.decode(), "rendered": None}, MCPSO_REF)


MCPSO_REF = RecordRef("quill", "https://mcp.so/servers/quill")


def test_a_page_gives_its_facts_and_names_the_rule_that_found_its_config():
    (found,) = read_mcpso(mcpso_page())
    assert (found.native_id, found.name) == ("quill", "Quill")
    assert found.repository == "https://github.com/acme/quill"
    assert found.updated_at == "2026-09-10T10:00:00Z"
    assert found.evidence == "source:code mcpServers.quill"
    assert (found.command, found.args) == ("npx", ("-y", "quill@1.0.0"))
    assert found.package.version == "1.0.0"


def test_the_list_is_every_child_sitemap_of_servers_and_an_index_without_any_is_an_error():
    child = f"{BASE}/sitemap.xml?section=servers&page="
    index = sitemap(
        f"{BASE}/sitemap.xml?section=static",
        *(f"{child}{number}".replace("&", "&amp;") for number in (2, 1)),
        index=True,
    )
    first, second = Answers({
        f"{BASE}/sitemap.xml": index,
        f"{child}1": sitemap(f"{BASE}/servers/a", f"{BASE}/about", lastmod="2026-01-01"),
        f"{child}2": sitemap(f"{BASE}/servers/b"),
    }).listed(MCPSO)  # fmt: skip
    [ref] = first.refs
    assert (ref.native_id, ref.revision, ref.weak) == ("a", "2026-01-01", False)
    # Without a lastmod nothing says that the page changed: it is read again after a while.
    assert (second.refs[0].revision is not None, second.refs[0].weak) == (True, True)
    assert (first.ended, second.ended) == (False, True)
    index = sitemap(f"{BASE}/sitemap.xml?section=static", index=True)
    with pytest.raises(CrawlError, match=r"\(layout_changed\)"):
        Answers({f"{BASE}/sitemap.xml": index}).listed(MCPSO)
