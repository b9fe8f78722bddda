"""Crawl: drives one adapter from its list to listings, every page through the ledger."""

import asyncio

from assets.marketplaces.crawl.buffer import Rows
from assets.marketplaces.crawl.pages import Pages
from assets.marketplaces.crawl.pipeline import Flow
from assets.marketplaces.crawl.recorder import Recorder
from assets.marketplaces.fetch.browser import Browser
from assets.marketplaces.fetch.fetcher import Fetcher
from assets.marketplaces.installed import GROUP, list_installed, load_entry_points
from assets.marketplaces.policy import Adapter, CrawlError, CrawlPolicy, UnknownMarketplace
from assets.marketplaces.result import Completeness, CrawlResult, make_problem
from warehouse.ledger.crawl_state import Memo
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Progress, Silent

KEY_MISSING: Completeness = "skipped: key missing"


def load_adapter(name: str, policy: CrawlPolicy) -> Adapter:
    """The adapter of a marketplace. Raises UnknownMarketplace naming the known ones."""
    if point := load_entry_points().get(name):
        return point.load()(policy)
    raise UnknownMarketplace(
        f"marketplace {name!r} is unknown; known: {', '.join(sorted(list_installed()))}; a package"
        f" adds one by the entry point group {GROUP!r}"
    )


def crawl(
    adapter: Adapter,
    *,
    ledger: Ledger,
    run_date: str,
    memo: Memo | None = None,
    progress: Progress | None = None,
    since: str | None = None,
    recorder: Recorder | None = None,
) -> CrawlResult:
    """One pass over a marketplace. Run again under the same run date, no page is fetched twice;
    pages of unchanged records are read from earlier runs where the marketplace gives a revision.

    Raises CrawlError where the list cannot be read or the layout changed; a single record that
    cannot be read is a problem row. With `since`, and an adapter that honours it, the result holds
    only what changed. Without a setting that is needed nothing is asked for at all. `memo` is what
    earlier crawls remember, by default the one beside the ledger.
    """
    if missing := adapter.missing():
        return _make_skipped(adapter.name, missing)
    since = since if adapter.incremental else None
    memory = memo or Memo(ledger.path.with_name("memo.db"))

    async def run() -> CrawlResult:
        fetcher, browser = Fetcher(adapter.policy), Browser(adapter.policy)
        pages = Pages(adapter, ledger, memory, run_date, fetcher, browser, recorder)
        flow = Flow(adapter, pages, progress or Silent())
        try:
            fetcher.headers = await adapter.headers(fetcher.post_form)
            await flow.read(since)
        except BaseExceptionGroup as group:
            raise _find_first_error(group) from group
        finally:
            await browser.close()
            await fetcher.close()
        flow.check_failures()
        flow.check_layout(memory)
        return flow.make_result(fetcher.requests + browser.requests, changes_only=since is not None)

    return asyncio.run(run())


def _make_skipped(marketplace: str, missing: list[str]) -> CrawlResult:
    frame, _ = Rows().make_frame()
    names = " and ".join(missing)
    wanted = (f"TOOLMILL_MARKETPLACES__{marketplace}__{name}".upper() for name in missing)
    variables = " and ".join(wanted)
    hint = f"{marketplace} wants {names}: set {variables}; nothing was asked for, nothing is gone"
    rows = [make_problem("", "", "key_missing", hint)]
    return CrawlResult(marketplace, frame, KEY_MISSING, 0, 0, [], rows)


def _find_first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error a person should read: the crawl's own before what it set off."""
    error: BaseException = group.subgroup(CrawlError) or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
