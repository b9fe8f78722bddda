"""Crawl: drives one adapter from its list to listings, every page through the ledger."""

import asyncio
import time
from typing import Any

import polars as pl

from assets.marketplaces.crawl.browser import PageBrowser
from assets.marketplaces.crawl.fetcher import PageFetcher
from assets.marketplaces.crawl.pages import PageSource
from assets.marketplaces.crawl.result import Completeness, CrawlResult, make_problem
from assets.marketplaces.installed import GROUP, list_installed, load_entry_points
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.normalise import clean
from assets.marketplaces.policy import (
    CrawlError,
    CrawlPolicy,
    MarketplaceAdapter,
    RecordRef,
    UnknownMarketplace,
)
from warehouse.item_failure import describe_failure
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.blobs import Blobs

_CHUNK = 500  # listings are Python objects until then: about 10 KB each, as columns 1-2 KB


class ListingBuffer:
    """Listings as they come, in the order in which their records were named; the tools they show
    go to `blobs`."""

    def __init__(self, blobs: Blobs | None = None) -> None:
        self._blobs = blobs
        self._chunks: list[pl.DataFrame] = []
        self._open: list[dict[str, object]] = []
        self._count = 0
        self._schema = {**dict(LISTINGS.columns), "_number": pl.Int64}

    def __len__(self) -> int:
        return self._count

    def add(self, number: int, listing: Listing) -> None:
        """Keeps the listing of the record that was named as the `number`-th."""
        blobs = listing.tools and self._blobs
        blob = blobs.put(str(listing.tools).encode()) if blobs else None
        row = make_row(listing, fetched_at=time.time(), tools_blob=blob)
        self._open.append({**row, "_number": number})
        self._count += 1
        if len(self._open) >= _CHUNK:
            self._close_chunk()

    def make_frame(self) -> tuple[pl.DataFrame, set[str]]:
        """All rows sorted by key, the first of equal ids kept; and the ids that came twice."""
        self._close_chunk()
        empty = pl.DataFrame(schema=self._schema)
        rows = pl.concat([empty, *self._chunks]).sort("listing_id", "_number")
        twice = rows.filter(pl.col("listing_id").is_duplicated())["native_id"].unique().to_list()
        unique = rows.unique("listing_id", keep="first", maintain_order=True)
        return unique.select(list(LISTINGS.columns)), set(twice)

    def _close_chunk(self) -> None:
        if self._open:
            self._chunks.append(pl.DataFrame(self._open, schema=self._schema, strict=False))
            self._open = []


# A failure of one record; any other is the marketplace's or this machine's.
_OF_THE_RECORD = (
    *("http_status", "too_large", "forbidden_host", "robots"),
    *("empty", "truncated", "missing_key", "wrong_type", "over_cap"),
)
_FAILED_SHARE = 0.5  # of the records read: more is a marketplace that fails, not its records
_ALARM_FROM = 4  # fewer pages say nothing about a layout
_ALARM_FALL = 0.5  # of the last crawl's hit rate
_ALARM_FIRST = 0.1  # a first crawl has nothing to compare with


def read_record(adapter: MarketplaceAdapter, ref: RecordRef, raw: Any) -> list[Listing]:
    """The listings of one raw record, cleaned; a record that cannot be read is a listing that is
    not runnable and says why."""
    try:
        return [clean(item) for item in adapter.parse(raw, ref)]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        first = (str(error).splitlines() or [""])[0]
        reason = f"malformed: {type(error).__name__}: {first}"[:300]
    except Exception as error:  # nobody foresaw it: the fault is ours, the other records go on
        reason = f"malformed: {describe_failure(error, (CrawlError,))}"
    name = ref.native_id
    return [clean(Listing(marketplace=adapter.name, native_id=name, name=name, reason=reason))]


class CrawlPipeline:
    """What a crawl has seen so far. Records flow through it: of each only the rows are kept."""

    def __init__(self, adapter: MarketplaceAdapter, pages: PageSource, progress: Progress) -> None:
        self.adapter, self.pages, self.progress = adapter, pages, progress
        self.policy = adapter.policy
        self.admitted: set[str] = set()
        self.done = self.hits = self.read_ok = 0
        self.rows = ListingBuffer(pages.ledger.blobs)
        self.duplicates: set[str] = set()
        self.problems: list[dict[str, Any]] = []
        self.failures: list[CrawlError] = []
        self.ended = False
        self.capped = self.truncated = False
        # Bounded, so that a long list waits for its records instead of filling the memory.
        self._due: asyncio.Queue[tuple[int, RecordRef] | None] = asyncio.Queue(
            4 * self.policy.concurrency
        )

    async def read(self) -> None:
        """Reads the list to its end or to the cap, and each record as it is named."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.policy.concurrency):
                group.create_task(self._read_queue())
            number = 0
            async for page in self.adapter.refs(self.pages.get):
                number += 1
                self.problems += page.problems
                self.truncated |= page.truncated
                self.ended = page.ended
                for ref in page.refs:
                    if ref.native_id in self.admitted:
                        self.duplicates.add(ref.native_id)  # the first of equal ids is kept
                    else:
                        self.admitted.add(ref.native_id)
                        await self._queue_record(len(self.admitted), ref)
                self.progress.update(
                    f"{self.adapter.name}: list", number, number, records=len(self.admitted)
                )
                if not self.ended and number >= self.policy.page_cap:
                    self.capped = True
                    break
            for _ in range(self.policy.concurrency):
                await self._due.put(None)

    async def _queue_record(self, number: int, ref: RecordRef) -> None:
        if ref.raw is not None:
            self._keep(number, ref, read_record(self.adapter, ref, ref.raw))
        else:
            await self._due.put((number, ref))

    async def _read_queue(self) -> None:
        while (due := await self._due.get()) is not None:
            number, ref = due
            self._keep(number, ref, await self._read_detail(ref))

    async def _read_detail(self, ref: RecordRef) -> list[Listing]:
        try:
            raw = await self.adapter.detail(ref, self.pages.get, self.pages.render)
        except CrawlError as error:
            if error.kind not in _OF_THE_RECORD or error.status in (401, 403):
                raise  # the marketplace or this machine failed, not the record
            if error.kind == "over_cap":
                self.capped = True
            elif error.kind != "robots":
                self.truncated = True
                self.failures.append(error)
            self.problems.append(make_problem(ref.native_id, ref.url, error.kind, str(error)))
            return []
        return read_record(self.adapter, ref, raw)

    def _keep(self, number: int, ref: RecordRef, listings: list[Listing]) -> None:
        self.done += 1
        self.read_ok += bool(listings)
        self.hits += any(item.evidence for item in listings)
        for listing in listings:
            self.rows.add(number, listing)
            if (listing.reason or "").startswith("malformed"):
                hint = f"{listing.reason}; the listing stays, marked as not runnable"
                self.problems.append(make_problem(listing.native_id, ref.url, "malformed", hint))
        name = f"{self.adapter.name}: records"
        self.progress.update(
            name, self.done, max(self.done, len(self.admitted)), rows=len(self.rows)
        )

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.read_ok if self.read_ok else None

    def check_layout(self, memo: CrawlMemo) -> None:
        """Raises CrawlError when far fewer records than in the last crawl show launch facts."""
        if not self.adapter.alarm or self.read_ok < _ALARM_FROM or self.hit_rate is None:
            return
        last = memo.get("hit_rate", self.adapter.name)
        least = _ALARM_FALL * last if last else _ALARM_FIRST
        if self.hit_rate < least:
            raise CrawlError(
                "layout_changed",
                self.policy.base_url,
                f"a config in only {self.hits} of {self.read_ok} records",
                f"one in at least {least:.0%}" + (f" (last crawl: {last:.0%})" if last else ""),
                "the site's layout changed and the adapter needs a new fixture; old listings stay",
            )
        memo.put("hit_rate", self.adapter.name, self.hit_rate)

    def make_result(self, requests: int) -> CrawlResult:
        frame, twice = self.rows.make_frame()
        whole = self.ended and not self.truncated
        return CrawlResult(
            marketplace=self.adapter.name,
            frame=frame,
            completeness="capped" if self.capped else "complete" if whole else "truncated",
            requests=requests,
            pages=self.pages.used,
            duplicates=sorted(self.duplicates | twice),
            problems=sorted(self.problems, key=lambda row: (row["native_id"], row["url"])),
            hit_rate=self.hit_rate,
        )


KEY_MISSING: Completeness = "skipped: key missing"


def load_adapter(name: str, policy: CrawlPolicy) -> MarketplaceAdapter:
    """The adapter of a marketplace. Raises UnknownMarketplace naming the known ones."""
    if point := load_entry_points().get(name):
        return point.load()(policy)
    raise UnknownMarketplace(
        f"marketplace {name!r} is unknown; known: {', '.join(sorted(list_installed()))}; a package"
        f" adds one by the entry point group {GROUP!r}"
    )


def crawl(
    adapter: MarketplaceAdapter,
    *,
    ledger: Ledger,
    run_date: str,
    memo: CrawlMemo | None = None,
    progress: Progress | None = None,
) -> CrawlResult:
    """One pass over a marketplace. Run again under the same run date, no page is fetched twice;
    pages of unchanged records are read from earlier runs where the marketplace gives a revision.

    Raises CrawlError where the list cannot be read or the layout changed; a single record that
    cannot be read is a problem row. Without a setting that is needed nothing is asked for at all.
    `memo` is what earlier crawls remember, by default the one beside the ledger.
    """
    if missing := adapter.missing():
        names = " and ".join(missing)
        variables = " and ".join(
            f"TOOLMILL_MARKETPLACES__{adapter.name}__{name}".upper() for name in missing
        )
        hint = (
            f"{adapter.name} wants {names}: set {variables}; nothing was asked for, nothing is gone"
        )
        rows = [make_problem("", "", "key_missing", hint)]
        frame, _ = ListingBuffer().make_frame()
        return CrawlResult(adapter.name, frame, KEY_MISSING, 0, 0, [], rows)
    memory = memo or CrawlMemo(ledger.path.with_name("memo.db"))

    async def run() -> CrawlResult:
        fetcher, browser = PageFetcher(adapter.policy), PageBrowser(adapter.policy)
        pages = PageSource(adapter, ledger, memory, run_date, fetcher, browser)
        flow = CrawlPipeline(adapter, pages, progress or SilentProgress())
        try:
            fetcher.headers = await adapter.headers(fetcher.post_form)
            await flow.read()
        except BaseExceptionGroup as group:
            error: BaseException = group.subgroup(CrawlError) or group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from group
        finally:
            await browser.close()
            await fetcher.close()
        failed = len(flow.failures)
        if failed >= _ALARM_FROM and failed > _FAILED_SHARE * (failed + flow.read_ok):
            raise flow.failures[0]
        flow.check_layout(memory)
        return flow.make_result(fetcher.requests + browser.requests)

    return asyncio.run(run())
