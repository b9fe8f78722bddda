"""MCPHub's pages: the gateway's config, the README's, and a walk over links."""

import asyncio
import json
from html import escape
from typing import Any

import pytest

from assets.marketplaces.adapters.mcphub import McpHubAdapter
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


def test_the_streamed_config_is_the_gateway_and_keeps_the_headers_name_only():
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


def test_a_readme_that_starts_the_servers_own_package_is_preferred():
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


def test_a_readme_with_several_servers_gives_several_listings():
    two = [(f"quill-{n}", {"command": "uvx", "args": [f"quill-{n}==1.0"]}) for n in "ab"]
    found = read(page(block(*two), streamed=None))
    assert [item.native_id[-8:] for item in found] == ["#quill-a", "#quill-b"]
    assert all("multi_server" in item.flags for item in found)


def test_a_page_without_any_config_is_listed_and_says_so():
    (found,) = read(page(streamed=None))
    assert (found.runnable, found.reason) == (False, "the page shows no config")


def xml(*locs: str, kind: str = "urlset") -> FetchedPage:
    rows = "".join(f"<url><loc>{loc}</loc><lastmod>2025-01-01</lastmod></url>" for loc in locs)
    return FetchedPage("s.xml", "application/xml", f"<{kind}>{rows}</{kind}>".encode())


def test_a_sitemap_is_the_whole_list():
    servers = f"{BASE}/mcp-servers"
    answers = Answers(
        {
            f"{BASE}/sitemap.xml": xml(f"{BASE}/sitemap/0.xml", kind="sitemapindex"),
            f"{BASE}/sitemap/0.xml": xml(
                servers, f"{servers}/acme/quill", f"{servers}/acme/quill/schema", f"{BASE}/tags/x"
            ),
        }
    )
    listed, end = answers.listed(ADAPTER)
    assert [(ref.native_id, ref.revision) for ref in listed.refs] == [("acme/quill", "2025-01-01")]
    assert end.ended


def test_a_sitemap_of_sitemaps_below_the_index_is_not_the_whole_list():
    answers = Answers(
        {
            f"{BASE}/sitemap.xml": xml(f"{BASE}/a.xml", kind="sitemapindex"),
            f"{BASE}/a.xml": xml(f"{BASE}/b.xml", f"{BASE}/mcp-servers/acme/quill"),
        }
    )
    end = answers.listed(ADAPTER)[-1]
    assert (end.ended, end.truncated) == (False, True)


def test_a_sitemap_without_servers_is_no_empty_marketplace():
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
