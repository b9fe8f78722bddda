"""PulseMCP, Smithery, Glama and the registry over real HTTP: paging, runs, keys, faults."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from assets.marketplaces.crawl.crawl import crawl, load_adapter
from assets.marketplaces.crawl.result import CrawlResult
from assets.marketplaces.installed import OURS, list_installed
from assets.marketplaces.listing import make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlError, CrawlPolicy, UnknownMarketplace
from demo.server import Replicas, replicas
from demo.world.record import KEYS
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from warehouse.ledger.ledger import Ledger

COUNT = 120


@pytest.fixture(scope="module")
def many() -> Iterator[Replicas]:
    sites = ("smithery", "glama", "pulsemcp")
    with replicas(scale="full", servers=COUNT, sites=sites) as running:
        yield running


def run(name: str, url: str, ledger: Ledger, run_date: str, **facts: Any) -> CrawlResult:
    keys = facts.pop("keys", KEYS.get(name, {}))
    policy = CrawlPolicy(url, keys=keys, requests_per_second=0, allow_loopback=True, **facts)
    return crawl(load_adapter(name, policy), ledger=ledger, run_date=run_date)


def test_an_unchanged_smithery_costs_no_detail_request(many, ledger):
    url = many["smithery"]
    first = run("smithery", url, ledger, "1", site_url=url)
    assert (first.completeness, len(first.frame), first.problems) == ("complete", COUNT, [])
    again = run("smithery", url, ledger, "2", site_url=url)
    assert again.requests == first.requests - COUNT
    assert again.frame.drop("fetched_at").equals(first.frame.drop("fetched_at"))


def test_whole_lists_are_read_with_a_key(many, ledger):
    whole = run("pulsemcp", many["pulsemcp"], ledger, "1")
    both = run("glama", many["glama"], ledger, "1", scope=("connectors", "servers"))
    for result in (whole, both):
        assert (result.completeness, len(result.frame)) == ("complete", COUNT)
    connectors = run("glama", many["glama"], ledger, "2")
    assert 0 < len(connectors.frame) < COUNT
    assert all(listing.runnable for listing in connectors.listings)


@cases("name", "glama", "pulsemcp")
def test_a_wrong_key_is_an_error_and_no_empty_marketplace(name, many, ledger):
    wrong = dict.fromkeys(KEYS[name], "wrong")
    with pytest.raises(CrawlError, match="401"):
        run(name, many[name], ledger, "1", keys=wrong)


def test_a_capped_list_is_truncated_where_robots_closes_the_sitemap(ledger):
    def answer(path: str, _: int) -> Answer:
        if path == "/robots.txt":
            return Answer(
                "User-agent: *\nDisallow: /sitemap_index.xml\n", content_type="text/plain"
            )
        if path.startswith("/servers?page=1&"):
            body: Any = {"servers": [{"qualifiedName": "ann/notes"}]}
        elif path.startswith("/servers?"):
            body = {"servers": []}
        else:
            body = {"qualifiedName": "ann/notes", "connections": []}
        pagination = {"pagination": {"totalCount": 9000, "totalPages": 90}}
        return Answer(json.dumps(body | pagination), content_type="application/json")

    with site(answer) as here:
        result = run("smithery", here.url, ledger, "1", site_url=here.url)
    assert result.completeness == "truncated"
    assert {row["error_kind"] for row in result.problems} == {"robots", "result_cap"}
    assert "/sitemap_index.xml" not in here.paths
    assert "/servers/ann%2Fnotes" in here.paths


def record(name: str, **server: Any) -> dict[str, Any]:
    return {"server": {"name": name, "description": "x", "version": "1.0.0", **server}}


def body(*records: Any, cursor: str | None = None) -> Answer:
    text = json.dumps({"servers": list(records), "metadata": {"nextCursor": cursor}})
    return Answer(text, content_type="application/json")


def test_an_unknown_marketplace_is_named_together_with_the_known_ones():
    with pytest.raises(
        UnknownMarketplace, match="'nowhere' is unknown; known: deepnlp, docker, glama"
    ):
        load_adapter("nowhere", CrawlPolicy(base_url="http://127.0.0.1:1"))
    assert set(OURS) <= set(list_installed())


def test_a_crawl_reads_every_page_and_keeps_every_record(demo_sites, at, ledger):
    demo_sites.switch(scale="standard")
    result = crawl(at("registry"), ledger=ledger, run_date="1")
    assert result.completeness == "complete"
    assert result.pages == result.requests == 3
    listed = {server.registry_name for server in demo_sites.world.list_records("registry")}
    assert {listing.native_id for listing in result.listings} == listed
    assert result.duplicates == ["io.github.toolmill/units"]
    assert [row["native_id"] for row in result.problems] == ["io.github.toolmill/malformed"]
    assert all(listing.runnable or listing.reason for listing in result.listings)
    frame = LISTINGS.frame([make_row(listing) for listing in result.listings])
    assert len(frame) == len(listed)


def test_the_same_run_asks_for_no_page_twice_and_the_next_run_asks_again(demo_sites, at, ledger):
    first = crawl(at("registry"), ledger=ledger, run_date="1")
    before = sum(demo_sites.count_by_kind("registry").values())
    again = crawl(at("registry"), ledger=ledger, run_date="1")
    assert (again.requests, sum(demo_sites.count_by_kind("registry").values())) == (0, before)
    assert again.listings == first.listings
    tomorrow = crawl(at("registry"), ledger=ledger, run_date="2")
    assert tomorrow.requests == tomorrow.pages
    assert tomorrow.listings == first.listings


@cases("name", "registry", "mcpso")
@cases(
    "fault, kind",
    ("truncated", "truncated"),
    ("empty", "empty"),
    ("html", "wrong_type"),
    ("down", "unreachable"),
)
def test_a_bad_answer_is_an_error_and_not_done(fault, kind, name, demo_sites, at, ledger):
    demo_sites.switch(faults={name: fault})
    with pytest.raises(CrawlError, match=rf"\({kind}\)"):
        crawl(at(name), ledger=ledger, run_date="1")
    assert ledger.counts()["page", "failed"] == 1
    if name == "registry":
        good_pages = 1 if fault == "truncated" else 0  # only the last page is cut
        assert ledger.counts().get(("page", "done"), 0) == good_pages
        demo_sites.switch(faults={})
        assert crawl(at(name), ledger=ledger, run_date="1").completeness == "complete"


def test_the_page_cap_ends_the_list_as_capped(at, ledger):
    with site(lambda path, n: body(record(f"a/{path[-4:]}"), cursor=str(hash(path)))) as here:
        result = crawl(at("registry", here.url, page_cap=3), ledger=ledger, run_date="1")
    assert result.completeness == "capped"
    assert result.pages == 3


@cases("text", "[]", "{}", '{"servers": {}}', "null", "")
def test_json_of_another_shape_is_refused(text, at, ledger):
    refused = pytest.raises(CrawlError, match=r"\((missing_key|empty)\)")
    with site(lambda *_: Answer(text, content_type="application/json")) as here, refused:
        crawl(at("registry", here.url), ledger=ledger, run_date="1")
