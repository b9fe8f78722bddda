"""Fixtures of the crawl tests: a ledger, replicas of the small scale, adapters pointed at them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assets.marketplaces.crawl.crawl import load_adapter
from assets.marketplaces.policy import CrawlPolicy, MarketplaceAdapter
from assets.servers.sandbox.contained_browser import open_browser_sandbox
from demo.server import Replicas, replicas
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs

MakeAdapter = Callable[..., MarketplaceAdapter]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))


@pytest.fixture(scope="module")
def running() -> Iterator[Replicas]:
    with replicas(scale="small") as urls:
        yield urls


@pytest.fixture
def demo_sites(running: Replicas) -> Iterator[Replicas]:
    """Replicas on day one without faults, whatever the test before did to them."""
    running.switch(day=1, scale="small", faults={})
    yield running
    running.switch(day=1, scale="small", faults={})


@pytest.fixture
def at(demo_sites: Replicas) -> MakeAdapter:
    def make(name: str, url: str | None = None, **changes: object) -> MarketplaceAdapter:
        facts = {
            "base_url": url or demo_sites[name],
            "requests_per_second": 0,
            "allow_loopback": True,
            "contain": open_browser_sandbox,
        }
        return load_adapter(name, CrawlPolicy(**(facts | changes)))  # type: ignore[arg-type]

    return make
