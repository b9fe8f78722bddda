"""The asset `listings`: runs, skipped partitions, failures that keep pages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dagster as dg
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.crawl.result import CrawlResult, make_problem, merge_listings
from assets.marketplaces.defs import LISTINGS_AUDIT, listings
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlPolicy
from tests.marketplaces.site import Answer, Site, site
from warehouse.store import Warehouse

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


def test_only_a_complete_pass_takes_a_listing_away_except_of_a_config_of_several():
    before = frame("a", "b")
    assert names(merge_listings(before, result("b", "c"))) == ["new b", "new c"]
    for ending in ("capped", "truncated"):
        after = merge_listings(before, result("b", "c", completeness=ending))
        assert names(after) == ["old a", "new b", "new c"]
    after = merge_listings(frame("a", "b", "c"), result("c", unread=("a",)))
    assert names(after) == ["old a", "new c"]
    before = frame("a#one", "a#two", "b#three")
    after = merge_listings(before, result("a#one", completeness="truncated"))
    assert names(after) == ["new a#one", "old b#three"]


@given(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_merging_the_same_result_twice_changes_nothing(before, seen):
    for ending in ("complete", "capped"):
        once = merge_listings(frame(*before), result(*seen, completeness=ending))
        again = merge_listings(once, result(*seen, completeness=ending))
        assert LISTINGS.digest(again) == LISTINGS.digest(once)


class Registry:
    """A registry of the tests' own that remembers what it was asked."""

    def __init__(self) -> None:
        self.versions = {"a/one": "1.0.0", "a/two": "1.0.0", "a/three": "1.0.0"}
        self.broken: Answer | None = None

    def __call__(self, path: str, number: int) -> Answer:
        query = parse_qs(urlsplit(path).query)
        if self.broken and "cursor" in query:
            return self.broken
        names = list(self.versions)
        first = "cursor" not in query
        half = names[:1] if first else names[1:]
        return self.page([self.record(name) for name in half], "next" if first else None)

    def record(self, name: str) -> dict[str, Any]:
        package = {"registryType": "npm", "identifier": name.replace("/", "-")}
        package |= {"version": self.versions[name], "transport": {"type": "stdio"}}
        official = {"status": "active", "updatedAt": "2026-11-01T00:00:00Z", "isLatest": True}
        server = {"name": name, "description": "x", "version": "1", "packages": [package]}
        meta = {"io.modelcontextprotocol.registry/official": official}
        return {"server": server, "_meta": meta}

    def page(self, records: list[dict[str, Any]], cursor: str | None) -> Answer:
        body = {"servers": records, "metadata": {"nextCursor": cursor, "count": len(records)}}
        return Answer(json.dumps(body), content_type="application/json")


@pytest.fixture
def served() -> Iterator[tuple[Registry, Site]]:
    registry = Registry()
    with site(registry) as here:
        yield registry, here


class Runs:
    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(home=self.home, state=self.home / "state", run_id="test")

    def run(self, partition: str = "registry", **policy: Any) -> dg.ExecuteInProcessResult:
        facts = {"base_url": self.url, "requests_per_second": 0, "allow_loopback": True} | policy
        crawlers = {partition: CrawlPolicy(**facts)}
        return dg.materialize(
            [listings],
            partition_key=partition,
            resources={"warehouse": self.warehouse, "crawlers": crawlers},
            raise_on_error=False,
        )

    def args(self) -> dict[str, str]:
        rows = self.warehouse.tables.read(LISTINGS, "registry")
        return {row["native_id"]: json.loads(row["args"])[-1] for row in rows.to_dicts()}


@pytest.fixture
def runs(tmp_path: Path, served: tuple[Registry, Site]) -> Runs:
    return Runs(tmp_path, served[1].url)


def test_an_unchanged_list_is_the_same_version_and_a_changed_one_is_followed(runs, served):
    registry, _ = served
    assert runs.run().success
    before = runs.warehouse.tables.head("listings", "registry")
    assert runs.run().success
    assert runs.warehouse.tables.head("listings", "registry") == before

    registry.versions = {"a/two": "2.0.0", "a/three": "1.0.0"}
    assert runs.run().success
    assert runs.args() == {"a/two": "a-two@2.0.0", "a/three": "a-three@1.0.0"}


def find_failed_check(result: dg.ExecuteInProcessResult) -> Any:
    [check] = [each for each in result.get_asset_check_evaluations() if not each.passed]
    return check


def test_an_empty_list_is_an_error(runs, served):
    registry, _ = served
    assert runs.run().success
    registry.versions.clear()
    result = runs.run()
    assert not result.success
    assert "empty" in find_failed_check(result).description
    assert len(runs.args()) == 3


def test_a_list_that_breaks_leaves_yesterdays_and_the_next_run_sees_the_world_anew(runs, served):
    registry, here = served
    registry.broken = Answer('{"servers": [', content_type="application/json")
    result = runs.run()
    assert not result.success
    check = find_failed_check(result)
    assert check.check_name == "crawl"
    assert "truncated" in (check.description or "")
    registry.broken = None
    here.paths.clear()
    assert runs.run().success
    assert len(here.paths) == 2  # the good first page was read again, too: it may be of yesterday


def test_a_marketplace_that_went_down_is_read_on_from_where_it_was(runs, served):
    registry, here = served
    registry.broken = Answer(status=404)
    assert not runs.run().success
    registry.broken = None
    here.paths.clear()
    assert runs.run().success
    assert [path for path in here.paths if "cursor" not in path] == []
    assert len(runs.args()) == 3


def test_a_partition_without_its_key_is_skipped_and_what_it_had_stays(runs):
    result = runs.run("glama")
    assert result.success
    assert result.asset_materializations_for_node("listings") == []
    assert runs.warehouse.tables.head("listings", "glama") is None
    warned = [check.check_name for check in result.get_asset_check_evaluations()]
    assert warned == LISTINGS_AUDIT.checks
    events = [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    seen = events[0].asset_observation_data.asset_observation.metadata
    assert seen["completeness"].value == "skipped: key missing"
    assert "TOOLMILL_MARKETPLACES__GLAMA__API_KEY" in str(seen["hint"].value)
