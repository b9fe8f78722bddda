"""Resources: factories that turn settings into the plain objects the rooms take.

What belongs here: building policies, stores and clients. What does not: using them.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from assets.marketplaces.crawl import CrawlPolicy
from assets.partitions import MARKETPLACES
from orchestration.settings import Settings, load_settings
from warehouse.store import Warehouse

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def open_warehouse(settings: Settings, run_id: str = "-") -> Warehouse:
    """The stores of the configured home; no file is touched until one is used."""
    return Warehouse(
        home=settings.home_path(),
        state=settings.state_path(),
        run_id=run_id,
        budget_usd=settings.budget_usd,
    )


def base_url(settings: Settings, marketplace: str) -> str:
    """Where a marketplace is read: its live site, or its replica on loopback."""
    if settings.source == "live":
        return getattr(settings.marketplaces, marketplace).base_url
    return f"http://127.0.0.1:{getattr(settings.demo, f'{marketplace}_port')}"


def crawl_policies(settings: Settings) -> dict[str, CrawlPolicy]:
    """How each marketplace is crawled."""
    demo = settings.source == "demo"
    chromium = settings.chromium or find_chromium()
    policies = {}
    for name in MARKETPLACES:
        marketplace = getattr(settings.marketplaces, name)
        policies[name] = CrawlPolicy(
            base_url=base_url(settings, name),
            user_agent=settings.user_agent,
            page_cap=marketplace.page_cap,
            max_body_bytes=8 * 1024 * 1024,
            requests_per_second=200.0 if demo else marketplace.requests_per_second,
            allow_loopback=demo,
            chromium=str(chromium) if chromium else None,
            timeout_s=30.0,
        )
    return policies


def find_chromium() -> Path | None:
    found = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    return Path(found) if found else None


def default_resources() -> Mapping[str, Any]:
    """Every resource of the code location, made from the settings when a run starts."""
    return {
        "warehouse": dg.ResourceDefinition(_warehouse),
        "crawlers": _resource(crawl_policies),
    }


def _warehouse(context: dg.InitResourceContext) -> Warehouse:
    return open_warehouse(load_settings(), context.run_id or "-")


def _resource(build: Any) -> dg.ResourceDefinition:
    def make(_: dg.InitResourceContext, build: Any) -> Any:
        return build(load_settings())

    return dg.ResourceDefinition(partial(make, build=build))
