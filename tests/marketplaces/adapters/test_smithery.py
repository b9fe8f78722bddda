"""Smithery: the capped list, the sitemap round it, and what its connections say."""

import asyncio
from typing import Any

import pytest

from assets.marketplaces.adapters.smithery import SmitheryAdapter
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage, RecordRef
from tests.marketplaces.answers import Answers, read, read_inputs
from tests.support.cases import cases

API = "https://api.market.example"
SITE = "https://market.example"
ADAPTER = SmitheryAdapter(CrawlPolicy(API, site_url=SITE))
ALONE = SmitheryAdapter(CrawlPolicy(API))


def listed(number: int) -> str:
    return f"{API}/servers?page={number}&pageSize=100&seed=1"


def items(*names: str, total: int, pages: int, number: int = 1) -> dict[str, Any]:
    servers = [
        {"qualifiedName": name, "displayName": name.title(), "useCount": 3} for name in names
    ]
    pagination = {"currentPage": number, "pageSize": 100, "totalPages": pages, "totalCount": total}
    return {"servers": servers, "pagination": pagination}


def sitemap(url: str, *locs: str, root: str = "urlset", entry: str = "url") -> FetchedPage:
    rows = "".join(
        f"<{entry}><loc>{loc}</loc><lastmod>2026-11-01</lastmod></{entry}>" for loc in locs
    )
    body = f'<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{rows}</{root}>'
    return FetchedPage(url, "application/xml", body.encode())


INDEX = f"{SITE}/sitemap_index.xml"
SHARD = f"{SITE}/sitemaps/servers-1.xml"
MAPPED = {
    INDEX: sitemap(
        INDEX, SHARD, f"{SITE}/sitemaps/skills-1.xml", root="sitemapindex", entry="sitemap"
    ),
    SHARD: sitemap(
        SHARD,
        f"{SITE}/servers/ann/notes",
        f"{SITE}/server/%40ann/files",
        f"{SITE}/server/exa",
        f"{SITE}/server/exa/tools",
        f"{SITE}/skills/a/b",
    ),
}


def names(adapter: SmitheryAdapter, answers: Answers) -> list[str]:
    return [ref.native_id for page in answers.listed(adapter) for ref in page.refs]


def test_the_list_is_read_to_its_last_page_and_one_that_repeats_or_shows_less_is_truncated():
    answers = Answers(
        {listed(1): items("a", "b", total=3, pages=2), listed(2): items("c", total=3, pages=2)}
    )
    pages = answers.listed(ALONE)
    assert [ref.native_id for page in pages for ref in page.refs] == ["a", "b", "c"]
    assert pages[-1].ended
    assert not pages[-1].truncated
    assert answers.asked == [listed(1), listed(2)]
    pages = [items(*names, total=9000, pages=90) for names in ("a", "b", "")]
    answers = Answers({listed(number): page for number, page in enumerate(pages, 1)})
    last = answers.listed(ALONE)[-1]
    assert (last.ended, last.truncated) == (False, True)
    assert [row["error_kind"] for row in last.problems] == ["result_cap"]
    assert "9,000" in last.problems[0]["hint"]
    again = items("a", total=500, pages=5)
    pages = Answers({listed(1): again, listed(2): again}).listed(ALONE)
    kinds = [row["error_kind"] for page in pages for row in page.problems]
    assert kinds == ["cursor_loop", "result_cap"]
    assert sum(len(page.refs) for page in pages) == 1
    assert pages[-1].truncated


def test_the_sitemap_adds_what_the_list_does_not_show():
    answers = Answers(
        MAPPED
        | {listed(1): items("@ann/notes", total=3, pages=9), listed(2): items(total=3, pages=9)}
    )
    pages = answers.listed(ADAPTER)
    refs = [ref for page in pages for ref in page.refs]
    assert [ref.native_id for ref in refs] == ["@ann/notes", "@ann/files", "exa"]
    assert refs[1].url == f"{API}/servers/%40ann%2Ffiles"
    assert {ref.revision for ref in refs} == {"2026-11-01"}
    assert all(ref.weak and ref.raw is None for ref in refs)
    assert (pages[-1].ended, pages[-1].truncated) == (True, False)


SITEMAP_ONLY = SmitheryAdapter(CrawlPolicy(API, site_url=SITE, scope=("sitemap",)))


def test_one_date_on_all_of_many_pages_says_nothing_and_a_server_may_be_called_like_a_tab():
    many = sitemap(SHARD, *(f"{SITE}/servers/ann/n{at}" for at in range(60)))
    pages = Answers(MAPPED | {SHARD: many}).listed(SITEMAP_ONLY)
    assert {ref.revision for page in pages for ref in page.refs} == {"listed"}
    shard = sitemap(SHARD, f"{SITE}/servers/ann/tools", f"{SITE}/servers/exa", f"{SITE}/docs/a")
    assert names(SITEMAP_ONLY, Answers(MAPPED | {SHARD: shard})) == ["ann/tools", "exa"]


def test_the_scope_chooses_between_list_and_sitemap_which_may_leave_the_list_truncated():
    refused = CrawlError("robots", INDEX, "Disallow", "a page", "leave it")
    pages = Answers({listed(1): items("a", total=5, pages=1), INDEX: refused}).listed(ADAPTER)
    assert [row["error_kind"] for row in pages[-1].problems] == ["robots", "result_cap"]
    assert pages[-1].truncated
    whole = Answers({listed(1): items("a", total=1, pages=1), INDEX: refused}).listed(ADAPTER)
    assert (whole[-1].ended, whole[-1].truncated) == (True, False)
    assert names(SITEMAP_ONLY, Answers(MAPPED)) == ["ann/notes", "@ann/files", "exa"]
    with pytest.raises(CrawlError):
        Answers({}).listed(SITEMAP_ONLY)
    other = SmitheryAdapter(CrawlPolicy(API, site_url=SITE, scope=("api",)))
    answers = Answers({listed(1): items("a", total=1, pages=1)})
    assert names(other, answers) == ["a"]
    assert answers.asked == [listed(1)]


def test_use_and_score_do_not_change_a_revision():
    before, after = items("a", total=1, pages=1), items("a", total=1, pages=1)
    after["servers"][0] |= {"useCount": 99, "score": 0.5, "iconUrl": "x"}
    changed = items("a", total=1, pages=1)
    changed["servers"][0] |= {"description": "new"}
    revisions = [
        Answers({listed(1): body}).listed(ALONE)[0].refs[0].revision
        for body in (before, after, changed)
    ]
    assert revisions[0] == revisions[1] != revisions[2]


def test_a_record_is_read_at_its_own_address_and_a_key_is_sent_where_there_is_one():
    async def unused(url: str, form: Any) -> dict[str, Any]:
        raise AssertionError(url)

    keyed = SmitheryAdapter(CrawlPolicy(API, keys={"api_key": "k"}))
    assert asyncio.run(keyed.headers(unused)) == {"Authorization": "Bearer k"}
    assert asyncio.run(ADAPTER.headers(unused)) == {}
    url = f"{API}/servers/ann%2Fnotes"
    raw = Answers({url: detail()}).detailed(ADAPTER, RecordRef("ann/notes", url))
    assert ADAPTER.parse(raw, RecordRef("ann/notes", url))[0].native_id == "ann/notes"
    with pytest.raises(CrawlError, match="qualifiedName"):
        Answers({url: {"error": "Server not found"}}).detailed(ADAPTER, RecordRef("ann/notes", url))


SCHEMA = {
    "type": "object",
    "required": ["apiKey", "region"],
    "properties": {
        "apiKey": {"type": "string", "description": "Key.", "x-from": {"header": "X-Api-Key"}},
        "region": {"type": "string", "x-from": {"query": "r"}},
        "limit": {"type": "number", "default": 5, "x-from": {"query": "limit"}},
        "debug": {"type": "boolean", "default": False},
        "pin": {"type": "string", "format": "password", "default": "s3cret"},
    },
}
BUNDLE = {"type": "stdio", "bundleUrl": "https://x.example/b.mcpb", "runtime": "node"}
HOSTED = {"type": "http", "deploymentUrl": "https://notes--ann.run.tools"}
OUTSIDE = {"type": "http", "deploymentUrl": "https://notes.example/mcp"}
SCRIPT = {"type": "stdio", "stdioFunction": "config => ({command: 'npx'})", "configSchema": SCHEMA}


def detail(*connections: Any, **facts: Any) -> dict[str, Any]:
    return {
        "qualifiedName": "ann/notes", "displayName": "Notes", "description": "N.", "remote": True,
        "deploymentUrl": None, "connections": list(connections), "tools": None, **facts,
    }  # fmt: skip


def test_settings_become_headers_query_and_variables():
    listing = read(ADAPTER, detail(OUTSIDE | {"configSchema": SCHEMA}))[0]
    assert listing.url == "https://notes.example/mcp?r={region}&limit=5"
    assert listing.transport == "streamable-http"
    assert read_inputs(listing.headers) == {"X-Api-Key": (True, True, None)}
    assert read_inputs(listing.env) == {
        "region": (True, False, None),
        "limit": (False, False, "5"),
        "debug": (False, False, "false"),
        "pin": (False, True, None),
    }
    assert listing.flags == ("needs_account", "placeholder")
    assert "s3cret" not in listing.model_dump_json()


@cases(
    "connections, evidence",
    ([OUTSIDE, BUNDLE], "connections[0]"),
    ([BUNDLE, OUTSIDE], "connections[0]"),
    ([HOSTED, BUNDLE], "connections[1]"),
    ([HOSTED], "connections[0]"),
    ([SCRIPT, HOSTED], "connections[1]"),
    ([None, 7, BUNDLE], "connections[2]"),
)
def test_the_first_connection_that_needs_no_account_is_taken(connections, evidence):
    listing = read(ADAPTER, detail(*connections))[0]
    assert listing.evidence == evidence
    assert listing.runnable
    assert ("hosted_gateway" in listing.flags) is (connections[int(evidence[12:-1])] is HOSTED)


def test_a_bundle_has_no_command_and_no_digest():
    listing = read(ADAPTER, detail(BUNDLE | {"configSchema": SCHEMA}))[0]
    assert (listing.transport, listing.command, listing.args) == ("stdio", None, ())
    assert (listing.package.type, listing.package.identifier) == ("mcpb", BUNDLE["bundleUrl"])
    assert listing.flags == ("needs_account", "unpinned")


@cases(
    "connections, reason",
    ([SCRIPT], "JavaScript"),
    ([{"type": "stdio", "exampleConfig": {"a": 1}}], "names no bundle"),
    ([{"type": "stdio", "bundleUrl": "<uri>"}], "not an http"),
    ([{"type": "http", "deploymentUrl": "<string>"}], "not http"),
    ([{"type": "ws", "deploymentUrl": "wss://x"}], "type 'ws'"),
    ([], "no connection"),
)
def test_what_cannot_be_launched_says_why(connections, reason):
    listing = read(ADAPTER, detail(*connections))[0]
    assert not listing.runnable
    assert reason in str(listing.reason)
    assert listing.command is None


def test_a_command_line_that_is_data_is_read_and_the_records_own_endpoint_stands_in():
    command = {"command": "npx", "args": ["-y", "@ann/notes@1.0.0"], "env": {"A": "b"}}
    connection = {"type": "stdio", **command}
    listing = read(ADAPTER, detail(connection))[0]
    assert listing.args == ("-y", "@ann/notes@1.0.0")
    assert listing.runnable
    inside = {"type": "stdio", "stdioFunction": {"command": "uvx", "args": ["notes==1.0"]}}
    assert read(ADAPTER, detail(inside))[0].command == "uvx"
    listing = read(ADAPTER, detail(deploymentUrl="https://notes.example/mcp"))[0]
    assert (listing.url, listing.evidence) == ("https://notes.example/mcp", "deploymentUrl")


def test_a_record_of_the_list_is_too_thin_and_the_hosted_server_asks_what_its_bundle_does():
    item = items("ann/notes", total=1, pages=1)
    item["servers"][0]["homepage"] = "https://notes.example"
    listing = read(ADAPTER, item["servers"][0])[0]
    assert not listing.runnable
    assert listing.url is None
    assert "own page" in str(listing.reason)
    schema = {"properties": {"acmeToken": {"type": "string"}}, "required": ["acmeToken"]}
    bundle = {"type": "stdio", "configSchema": schema}
    (listing,) = read(ADAPTER, detail(bundle, deploymentUrl="https://server.smithery.ai/a/b"))
    assert listing.url == "https://server.smithery.ai/a/b"
    assert read_inputs(listing.env) == {"acmeToken": (True, True, None)}
