"""The official registry over real HTTP: paging, runs, faults, odd records."""

import json
from typing import Any

import pytest

from assets.marketplaces.crawl.crawl import crawl, load_adapter
from assets.marketplaces.installed import OURS, list_installed
from assets.marketplaces.listing import make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlError, CrawlPolicy, UnknownMarketplace
from demo.server import Replicas
from tests.marketplaces.conftest import MakeAdapter
from tests.marketplaces.site import Answer, site
from warehouse.ledger.ledger import Ledger


def record(name: str, **server: Any) -> dict[str, Any]:
    return {"server": {"name": name, "description": "x", "version": "1.0.0", **server}}


def body(*records: Any, cursor: str | None = None) -> Answer:
    text = json.dumps({"servers": list(records), "metadata": {"nextCursor": cursor}})
    return Answer(text, content_type="application/json")


def test_an_unknown_marketplace_is_named_together_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownMarketplace, match="'nowhere' is unknown; known: deepnlp, docker, glama"
    ):
        load_adapter("nowhere", CrawlPolicy(base_url="http://127.0.0.1:1"))
    assert set(OURS) <= set(list_installed())


def test_a_crawl_reads_every_page_and_keeps_every_record(
    demo_sites: Replicas, at: MakeAdapter, ledger: Ledger
) -> None:
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


def test_the_same_run_asks_for_no_page_twice_and_the_next_run_asks_again(
    demo_sites: Replicas, at: MakeAdapter, ledger: Ledger
) -> None:
    first = crawl(at("registry"), ledger=ledger, run_date="1")
    before = sum(demo_sites.count_by_kind("registry").values())
    again = crawl(at("registry"), ledger=ledger, run_date="1")
    assert (again.requests, sum(demo_sites.count_by_kind("registry").values())) == (0, before)
    assert again.listings == first.listings
    tomorrow = crawl(at("registry"), ledger=ledger, run_date="2")
    assert tomorrow.requests == tomorrow.pages
    assert tomorrow.listings == first.listings


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("truncated", "truncated"),
        ("empty", "empty"),
        ("html", "wrong_type"),
        ("down", "unreachable"),
    ],
)
def test_a_bad_answer_is_an_error_and_no_effect_that_is_done(
    fault: str, kind: str, demo_sites: Replicas, at: MakeAdapter, ledger: Ledger
) -> None:
    demo_sites.switch(faults={"registry": fault})
    with pytest.raises(CrawlError) as caught:
        crawl(at("registry"), ledger=ledger, run_date="1")
    assert caught.value.kind == kind
    assert ledger.counts()["page", "failed"] == 1
    good_pages = 1 if fault == "truncated" else 0  # only the last page is cut
    assert ledger.counts().get(("page", "done"), 0) == good_pages
    demo_sites.switch(faults={})
    assert crawl(at("registry"), ledger=ledger, run_date="1").completeness == "complete"


def test_a_cursor_that_comes_twice_ends_the_list_as_truncated(
    at: MakeAdapter, ledger: Ledger
) -> None:
    with site(lambda path, _: body(record(f"a/{len(path)}"), cursor="again")) as here:
        result = crawl(at("registry", here.url), ledger=ledger, run_date="1")
    assert result.completeness == "truncated"
    assert [row["error_kind"] for row in result.problems] == ["cursor_loop"]
    assert len(here.paths) == 2


def test_the_page_cap_ends_the_list_as_capped(at: MakeAdapter, ledger: Ledger) -> None:
    with site(lambda path, n: body(record(f"a/{path[-4:]}"), cursor=str(hash(path)))) as here:
        result = crawl(at("registry", here.url, page_cap=3), ledger=ledger, run_date="1")
    assert result.completeness == "capped"
    assert result.pages == 3


def test_records_without_a_name_are_rows_and_do_not_stop_the_crawl(
    at: MakeAdapter, ledger: Ledger
) -> None:
    odd = [None, 7, {}, {"server": {"name": ""}}, record("a/b", packages=[None])]
    with site(lambda *_: body(*odd, record("a/c"))) as here:
        result = crawl(at("registry", here.url), ledger=ledger, run_date="1")
    assert [listing.native_id for listing in result.listings] == ["a/b", "a/c"]
    assert all(row["error_kind"] == "malformed" and row["hint"] for row in result.problems)
    assert len(result.problems) == 5


def test_odd_characters_and_secrets_do_not_reach_the_table_or_the_blobs(
    at: MakeAdapter, ledger: Ledger
) -> None:
    token = "ghp_" + "a1B2" * 9
    odd = record("a/b", title="\u202ebidi \ud800 zero\u200bwidth", description=f"use {token}")
    with site(lambda *_: body(odd)) as here:
        result = crawl(at("registry", here.url), ledger=ledger, run_date="1")
    assert LISTINGS.frame([make_row(listing) for listing in result.listings])["name"][0]
    stored = [path for path in ledger.blobs.root.rglob("*") if path.is_file()]
    assert stored
    assert token not in str(result)
    assert all(token.encode() not in ledger.blobs.get(path.name) for path in stored)


@pytest.mark.parametrize("text", ["[]", "{}", '{"servers": {}}', "null", ""])
def test_json_of_another_shape_is_refused(text: str, at: MakeAdapter, ledger: Ledger) -> None:
    with (
        site(lambda *_: Answer(text, content_type="application/json")) as here,
        pytest.raises(CrawlError) as caught,
    ):
        crawl(at("registry", here.url), ledger=ledger, run_date="1")
    assert caught.value.kind in ("missing_key", "empty")
