"""mcp.so's pages and sitemaps, read without HTTP."""

import json
from typing import Any

import pytest

from assets.marketplaces.adapters.mcpso import McpSoAdapter
from assets.marketplaces.policy import CrawlError, FetchedPage, RecordRef
from tests.marketplaces.answers import POLICY, Answers

ADAPTER = McpSoAdapter(POLICY)
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


def page(config: object = CONFIG, facts: str = FACTS, head: str = "") -> bytes:
    pre = f"<pre><code>{json.dumps(config)}</code></pre>" if config else ""
    body = f"<h1>QuillVerified</h1><script>{facts}</script>{pre}"
    return f"<html><head>{head}</head>{body}</html>".encode()


def sitemap(*locs: str, lastmod: str = "", index: bool = False) -> FetchedPage:
    outer, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
    mod = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    rows = "".join(f"<{inner}><loc>{loc}</loc>{mod}</{inner}>" for loc in locs)
    return FetchedPage("sitemap.xml", "application/xml", f"<{outer}>{rows}</{outer}>".encode())


def read(body: bytes) -> list[Any]:
    return ADAPTER.parse({"html": body.decode(), "rendered": None}, REF)


REF = RecordRef("quill", "https://mcp.so/servers/quill")


def test_a_page_gives_its_facts_and_names_the_rule_that_found_its_config():
    (found,) = read(page())
    assert (found.native_id, found.name) == ("quill", "Quill")
    assert found.repository == "https://github.com/acme/quill"
    assert found.updated_at == "2026-09-10T10:00:00Z"
    assert found.evidence == "source:code mcpServers.quill"
    assert (found.command, found.args) == ("npx", ("-y", "quill@1.0.0"))
    assert found.package.version == "1.0.0"


def test_the_list_is_every_child_sitemap_of_servers():
    child = f"{BASE}/sitemap.xml?section=servers&page="
    index = sitemap(
        f"{BASE}/sitemap.xml?section=static",
        *(f"{child}{number}".replace("&", "&amp;") for number in (2, 1)),
        index=True,
    )
    answers = Answers(
        {
            f"{BASE}/sitemap.xml": index,
            f"{child}1": sitemap(f"{BASE}/servers/a", f"{BASE}/about", lastmod="2026-01-01"),
            f"{child}2": sitemap(f"{BASE}/servers/b"),
        }
    )
    first, second = answers.listed(ADAPTER)
    assert [(ref.native_id, ref.revision, ref.weak) for ref in first.refs] == [
        ("a", "2026-01-01", False)
    ]
    # Without a lastmod nothing says that the page changed: it is read again after a while.
    assert (second.refs[0].revision is not None, second.refs[0].weak) == (True, True)
    assert (first.ended, second.ended) == (False, True)


def test_an_index_without_sitemaps_of_servers_is_a_changed_layout():
    index = sitemap(f"{BASE}/sitemap.xml?section=static", index=True)
    with pytest.raises(CrawlError, match=r"\(layout_changed\)"):
        Answers({f"{BASE}/sitemap.xml": index}).listed(ADAPTER)
