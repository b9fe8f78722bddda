"""What a crawl leaves standing."""

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.crawl.result import CrawlResult, make_problem, merge_listings
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS

DAY = 86_400.0
NOW = 1_795_000_000.0


def frame(*ids: str, name: str = "old") -> pl.DataFrame:
    listings = [
        Listing(marketplace="m", native_id=item, name=f"{name} {item}", reason="x") for item in ids
    ]
    return LISTINGS.frame([make_row(listing) for listing in listings])


def result(*ids: str, completeness: Any = "complete", unread: tuple[str, ...] = (), **facts: Any):
    rows = [make_problem(item, "", "http_status", "x") for item in unread]
    return CrawlResult("m", frame(*ids, name="new"), completeness, 1, 1, [], rows, **facts)


def names(rows: pl.DataFrame) -> list[str]:
    return rows.sort("native_id")["name"].to_list()


def test_only_a_complete_pass_takes_a_listing_away():
    before = frame("a", "b")
    assert names(merge_listings(before, result("b", "c"))) == ["new b", "new c"]
    for ending in ("capped", "truncated"):
        after = merge_listings(before, result("b", "c", completeness=ending))
        assert names(after) == ["old a", "new b", "new c"]


def test_a_record_that_could_not_be_read_in_this_run_is_not_gone():
    assert names(merge_listings(frame("a", "b", "c"), result("c", unread=("a",)))) == [
        "old a",
        "new c",
    ]


def test_a_server_that_left_a_config_of_several_goes_even_in_a_pass_that_is_not_complete():
    before = frame("a#one", "a#two", "b#three")
    after = merge_listings(before, result("a#one", completeness="truncated"))
    assert names(after) == ["new a#one", "old b#three"]


@given(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_merging_the_same_result_twice_changes_nothing(before, seen):
    for ending in ("complete", "capped"):
        once = merge_listings(frame(*before), result(*seen, completeness=ending))
        assert LISTINGS.digest(
            merge_listings(once, result(*seen, completeness=ending))
        ) == LISTINGS.digest(once)
