"""Every adapter against every fault of its replica: an error that says why, or the whole truth."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from assets.marketplaces.crawl.crawl import crawl, load_adapter
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from demo.replicas.faults import KINDS
from demo.server import Replicas, replicas
from demo.world.record import KEYS
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs

# mcpso and mcphub render with Chromium: seconds a crawl; their faults are in test_crawl_mcpso.py.
SITES = ("registry", "smithery", "glama", "pulsemcp", "deepnlp", "pipedream", "docker")
SERVERS = 12
# Ways to misbehave after which a crawl may still call itself complete: nothing is missing.
HARMLESS = {
    *("duplicates", "huge_description", "bad_utf8", "hidden_text", "storm429", "rate_limit"),
    *("skew", "latency", "no_validators", "layout", "robots_disallow", "crawl_delay"),
    *("no_sitemap", "wrong_key", "cursor_loop"),
}
FAULTS = [kind for kind in KINDS if kind not in ("down", "error500", "crawl_delay", "latency")]
Found = tuple[str, set[str]]  # completeness, native ids


@pytest.fixture(scope="module")
def running() -> Iterator[Replicas]:
    with replicas(scale="full", servers=SERVERS, sites=SITES) as sites:
        yield sites


@pytest.fixture(scope="module")
def sound(
    running: Replicas, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Found, Path]]:
    """A first crawl of each site without faults, made once: what it found, and its ledger."""

    @cache
    def crawled(site: str) -> tuple[Found, Path]:
        home = tmp_path_factory.mktemp(site)
        running.switch(faults={})
        return ids(running, site, ledger_of(home), "1"), home

    return crawled


def ledger_of(home: Path) -> Ledger:
    return Ledger(home / "ledger.db", Blobs(home / "blobs"))


def ids(running: Replicas, site: str, ledger: Ledger, run_date: str) -> Found:
    policy = CrawlPolicy(
        base_url=running[site],
        site_url=running[site],
        keys=KEYS.get(site, {}),
        requests_per_second=0,
        allow_loopback=True,
        max_body_mb=32,
        scope=("connectors", "servers") if site == "glama" else (),
    )
    result = crawl(load_adapter(site, policy), ledger=ledger, run_date=run_date)
    assert all(listing.runnable or listing.reason for listing in result.listings)
    assert all(row["hint"] for row in result.problems)
    return result.completeness, {listing.native_id for listing in result.listings}


def list_cases() -> Iterator[Any]:
    """Every fault at every site: by default each fault at every second site and each site with
    every second fault, the others in `make test-all`."""
    for at, (site, fault) in enumerate(product(SITES, FAULTS)):
        turn = at // len(FAULTS) + at % len(FAULTS)
        yield pytest.param(site, fault, marks=[pytest.mark.slow] if turn % 2 else [])


@pytest.mark.parametrize(("site", "fault"), list_cases())
def test_a_fault_is_told_or_changes_nothing(
    site: str,
    fault: str,
    running: Replicas,
    sound: Callable[[str], tuple[Found, Path]],
    tmp_path: Path,
) -> None:
    first, home = sound(site)
    assert first[0] == "complete"
    ledger = ledger_of(shutil.copytree(home, tmp_path / "home"))
    value = {"storm429": ":2", "gzip_bomb": ":64", "rate_limit": ":50", "huge_description": ":2"}
    running.switch(faults={site: fault + value.get(fault, "")})
    raised: CrawlError | None = None
    found: Found = ("failed", set())
    try:
        found = ids(running, site, ledger, "2")
    except CrawlError as error:
        raised = error
    assert raised is None or (raised.kind and raised.fix)
    if found[0] == "complete":
        assert fault in HARMLESS
        assert found[1] == first[1]
    running.switch(faults={})
    # The good run after a bad one sees the whole marketplace again.
    assert ids(running, site, ledger, "3") == first
