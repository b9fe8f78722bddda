"""PulseMCP, Smithery and Glama over real HTTP: runs, keys, caps and a sitemap that is closed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from assets.marketplaces.crawl.crawl import crawl, load_adapter
from assets.marketplaces.crawl.result import CrawlResult
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from demo.server import Replicas, replicas
from demo.world.record import KEYS
from tests.marketplaces.site import Answer, site
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


def test_an_unchanged_smithery_costs_no_detail_request(many: Replicas, ledger: Ledger) -> None:
    url = many["smithery"]
    first = run("smithery", url, ledger, "1", site_url=url)
    assert (first.completeness, len(first.frame), first.problems) == ("complete", COUNT, [])
    again = run("smithery", url, ledger, "2", site_url=url)
    assert again.requests == first.requests - COUNT
    assert again.frame.drop("fetched_at").equals(first.frame.drop("fetched_at"))


def test_both_lists_of_glama_are_whole_with_a_key(many: Replicas, ledger: Ledger) -> None:
    both = run("glama", many["glama"], ledger, "1", scope=("connectors", "servers"))
    assert (both.completeness, len(both.frame)) == ("complete", COUNT)
    connectors = run("glama", many["glama"], ledger, "2")
    assert 0 < len(connectors.frame) < COUNT
    assert all(listing.runnable for listing in connectors.listings)


@pytest.mark.parametrize("name", ["glama", "pulsemcp"])
def test_without_its_key_nothing_is_asked_for(name: str, many: Replicas, ledger: Ledger) -> None:
    before = sum(many.count_by_kind(name).values())
    result = run(name, many[name], ledger, "1", keys={})
    assert (result.completeness, result.requests) == ("skipped: key missing", 0)
    assert sum(many.count_by_kind(name).values()) == before


@pytest.mark.parametrize("name", ["glama", "pulsemcp"])
def test_a_wrong_key_is_an_error_and_no_empty_marketplace(
    name: str, many: Replicas, ledger: Ledger
) -> None:
    wrong = dict.fromkeys(KEYS[name], "wrong")
    with pytest.raises(CrawlError, match="401"):
        run(name, many[name], ledger, "1", keys=wrong)


def test_pulsemcp_reads_whole(many: Replicas, ledger: Ledger) -> None:
    result = run("pulsemcp", many["pulsemcp"], ledger, "1")
    assert (result.completeness, len(result.frame)) == ("complete", COUNT)


def test_a_capped_list_is_truncated_where_robots_closes_the_sitemap(ledger: Ledger) -> None:
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
