"""What a crawl leaves standing, and since when the next one asks."""

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.crawl.result import (
    CrawlResult,
    find_checkpoint,
    make_problem,
    merge_listings,
    save_checkpoint,
)
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.storage.tables import TableHead

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


def test_only_a_complete_pass_takes_a_listing_away() -> None:
    before = frame("a", "b")
    assert names(merge_listings(before, result("b", "c"))) == ["new b", "new c"]
    for ending in ("capped", "truncated"):
        after = merge_listings(before, result("b", "c", completeness=ending))
        assert names(after) == ["old a", "new b", "new c"]


def test_a_record_that_could_not_be_read_in_this_run_is_not_gone() -> None:
    assert names(merge_listings(frame("a", "b", "c"), result("c", unread=("a",)))) == [
        "old a",
        "new c",
    ]


def test_a_pass_over_changes_takes_away_only_what_is_called_deleted() -> None:
    after = merge_listings(frame("a", "b", "c"), result("b", changes_only=True, gone=["c"]))
    assert names(after) == ["old a", "new b"]


def test_a_server_that_left_a_config_of_several_goes_even_in_a_pass_that_is_not_complete() -> None:
    before = frame("a#one", "a#two", "b#three")
    after = merge_listings(before, result("a#one", completeness="truncated"))
    assert names(after) == ["new a#one", "old b#three"]


@given(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_merging_the_same_result_twice_changes_nothing(before: set[str], seen: set[str]) -> None:
    for ending in ("complete", "capped"):
        once = merge_listings(frame(*before), result(*seen, completeness=ending))
        assert LISTINGS.digest(
            merge_listings(once, result(*seen, completeness=ending))
        ) == LISTINGS.digest(once)


def head(digest: str = "v1") -> TableHead:
    return TableHead(digest, 1, "run", NOW)


EDITS = ["2026-11-01T08:00:00Z", None, "soon", "2026-11-03T12:00:00+02:00"]


def asked(
    memo: CrawlMemo, at: TableHead | None, now: float = NOW, edits: Any = EDITS
) -> str | None:
    return find_checkpoint(memo, "m", at, edits, now=now)


def test_changes_are_asked_for_since_a_day_before_the_newest_edit(tmp_path) -> None:
    memo = CrawlMemo(tmp_path / "memo.db")
    assert asked(memo, head()) is None
    save_checkpoint(memo, "m", head(), result("a"), begun=NOW)
    assert asked(memo, head(), NOW + DAY) == "2026-11-02T10:00:00Z"


def test_an_edit_stamped_in_the_future_hides_no_change(tmp_path) -> None:
    memo = CrawlMemo(tmp_path / "memo.db")
    save_checkpoint(memo, "m", head(), result("a"), begun=NOW)
    assert asked(memo, head(), edits=[*EDITS, "2056-01-01T00:00:00Z"]) == "2026-11-02T10:00:00Z"
    assert asked(memo, head(), edits=["2056-01-01T00:00:00Z", None]) is None


def test_a_full_pass_follows_a_lost_table_a_capped_crawl_and_a_week(tmp_path) -> None:
    memo = CrawlMemo(tmp_path / "memo.db")
    save_checkpoint(memo, "m", head(), result("a", completeness="capped"), begun=NOW)
    assert asked(memo, head()) is None
    save_checkpoint(memo, "m", head(), result("a"), begun=NOW)
    assert asked(memo, None) is None
    assert asked(memo, head("another")) is None
    for day in range(1, 7):
        save_checkpoint(memo, "m", head(), result("a", changes_only=True), begun=NOW + day * DAY)
    assert asked(memo, head(), NOW + 6.9 * DAY) is not None
    assert asked(memo, head(), NOW + 7.1 * DAY) is None


def test_a_crawl_after_the_checkpoints_table_was_refused_asks_for_all_again(tmp_path) -> None:
    memo = CrawlMemo(tmp_path / "memo.db")
    save_checkpoint(memo, "m", head(), result("a"), begun=NOW)
    save_checkpoint(memo, "m", head("v2"), result("a", completeness="truncated"), begun=NOW + DAY)
    assert asked(memo, head("v2"), NOW + 2 * DAY) is None
