"""Every adapter against every fault of its replica: an error that says why, or the whole truth."""

from collections.abc import Iterator

import pytest

from assets.marketplaces.crawl.crawl import CrawlError, CrawlPolicy, adapter, crawl
from demo.replicas.faults import KINDS
from demo.replicas.server import Replicas, replicas
from demo.world.keys import KEYS
from warehouse.ledger.ledger import Ledger

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


@pytest.fixture(scope="module")
def running() -> Iterator[Replicas]:
    with replicas(scale="full", servers=SERVERS, sites=SITES) as sites:
        yield sites


def ids(running: Replicas, site: str, ledger: Ledger, night: str) -> tuple[str, set[str]]:
    policy = CrawlPolicy(
        base_url=running[site],
        site_url=running[site],
        keys=KEYS.get(site, {}),
        requests_per_second=0,
        allow_loopback=True,
        max_body_bytes=32 * 1024 * 1024,
        scope=("connectors", "servers") if site == "glama" else (),
    )
    result = crawl(adapter(site, policy), ledger=ledger, night=night)
    assert all(one.runnable or one.reason for one in result.listings)
    assert all(row["hint"] for row in result.problems)
    return result.completeness, {one.native_id for one in result.listings}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("site", SITES)
def test_a_fault_is_told_or_changes_nothing(
    site: str, fault: str, running: Replicas, ledger: Ledger
) -> None:
    running.switch(faults={})
    sound = ids(running, site, ledger, "1")
    assert sound[0] == "complete"
    value = {"storm429": ":2", "gzip_bomb": ":64", "rate_limit": ":50"}.get(fault, "")
    running.switch(faults={site: fault + value})
    told: CrawlError | None = None
    found = ("failed", set[str]())
    try:
        found = ids(running, site, ledger, "2")
    except CrawlError as error:
        told = error
    assert told is None or (told.kind and told.mend)
    if found[0] == "complete":
        assert fault in HARMLESS
        assert found[1] == sound[1]
    running.switch(faults={})
    # The good night after a bad one sees the whole marketplace again.
    assert ids(running, site, ledger, "3") == sound
