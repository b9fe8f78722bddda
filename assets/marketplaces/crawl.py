"""Crawl: drives one adapter from its list to listings, every page through the ledger.

What belongs here: finding adapters, the flow of records, caps, completeness, the layout alarm.
What does not: what a marketplace serves (one module each), keys of pages (`pages.py`) and how a
request is sent (`http.py`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from typing import Any

from assets.marketplaces.browser import Browser
from assets.marketplaces.clean import clean
from assets.marketplaces.http import Fetcher
from assets.marketplaces.listing import Listing
from assets.marketplaces.pages import Pages
from assets.marketplaces.policy import (
    Adapter,
    Completeness,
    CrawlError,
    CrawlPolicy,
    CrawlResult,
    Ref,
    RefPage,
    UnknownMarketplace,
    problem,
)
from assets.marketplaces.record import Recorder
from assets.marketplaces.rows import Rows
from warehouse.effects.ledger import Ledger
from warehouse.effects.memo import Memo
from warehouse.progress import Progress, Silent

__all__ = [
    "Adapter",
    "CrawlError",
    "CrawlPolicy",
    "CrawlResult",
    "UnknownMarketplace",
    "adapter",
    "crawl",
    "known",
]

GROUP = "toolmill.marketplaces"
KEY_MISSING: Completeness = "skipped: key missing"
# A failure of one record; any other is the marketplace's or this machine's.
_OF_THE_RECORD = ("http_status", "too_large", "forbidden_host", "robots")
_ALARM_FROM = 4  # fewer pages say nothing about a layout
_ALARM_FALL = 0.5  # of the last crawl's hit rate
_ALARM_FIRST = 0.1  # a first crawl has nothing to compare with


def known() -> list[str]:
    """Names of the installed adapters."""
    return sorted(point.name for point in entry_points(group=GROUP))


def adapter(name: str, policy: CrawlPolicy) -> Adapter:
    """The adapter of a marketplace. Raises UnknownMarketplace naming the known ones."""
    for point in entry_points(group=GROUP):
        if point.name == name:
            return point.load()(policy)
    raise UnknownMarketplace(
        f"marketplace {name!r} is unknown; known: {', '.join(known())}; a package adds one by the"
        f" entry point group {GROUP!r}"
    )


def crawl(
    adapter: Adapter,
    *,
    ledger: Ledger,
    memo: Memo,
    night: str,
    progress: Progress | None = None,
    since: str | None = None,
    recorder: Recorder | None = None,
) -> CrawlResult:
    """One pass over a marketplace. Run again in the same night, no page is fetched twice; pages of
    unchanged records are read from earlier nights where the marketplace gives a revision.

    Raises CrawlError where the list cannot be read or the layout changed; a single record that
    cannot be read is a problem row. With `since`, and an adapter that honours it, the result holds
    only what changed. Without a key that is needed nothing is asked for at all.
    """
    if missing := [name for name in adapter.needs if not adapter.policy.keys.get(name)]:
        return _skipped(adapter.name, missing)
    since = since if adapter.incremental else None
    return asyncio.run(_crawl(adapter, ledger, memo, night, progress or Silent(), since, recorder))


async def _crawl(
    adapter: Adapter,
    ledger: Ledger,
    memo: Memo,
    night: str,
    progress: Progress,
    since: str | None,
    recorder: Recorder | None,
) -> CrawlResult:
    async with _opened(adapter.policy) as (fetcher, browser):
        pages = Pages(adapter, ledger, memo, night, fetcher, browser, recorder)
        fetcher.headers = await adapter.headers(fetcher.post_form)
        seen = _Seen(adapter, pages, progress)
        try:
            await seen.read(since)
        except BaseExceptionGroup as group:
            raise _first(group) from group
        seen.check_layout(memo)
        return seen.result(fetcher.requests + browser.requests, changes_only=since is not None)


@asynccontextmanager
async def _opened(policy: CrawlPolicy) -> AsyncIterator[tuple[Fetcher, Browser]]:
    fetcher, browser = Fetcher(policy), Browser(policy)
    try:
        yield fetcher, browser
    finally:
        await browser.close()
        await fetcher.close()


class _Seen:
    """What a crawl has seen so far. Records flow through it: of each only the rows are kept."""

    def __init__(self, adapter: Adapter, pages: Pages, progress: Progress) -> None:
        self.adapter, self.pages, self.progress = adapter, pages, progress
        self.policy = adapter.policy
        self.admitted: set[str] = set()
        self.done = self.hits = self.read_ok = 0
        self.rows = Rows()
        self.duplicates: set[str] = set()
        self.problems: list[dict[str, Any]] = []
        self.gone: list[str] = []
        self.ended = False
        self.capped = self.truncated = False
        # Bounded, so that a long list waits for its records instead of filling the memory.
        self._due: asyncio.Queue[tuple[int, Ref] | None] = asyncio.Queue(
            4 * self.policy.concurrency
        )

    async def read(self, since: str | None) -> None:
        """Reads the list to its end or to the cap, and each record as it is named."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.policy.concurrency):
                group.create_task(self._work())
            number = 0
            async for page in self.adapter.refs(self.pages.get, since):
                number += 1
                await self._admit_all(page)
                self.progress.update(
                    f"{self.adapter.name}: list", number, number, records=len(self.admitted)
                )
                if not self.ended and number >= self.policy.page_cap:
                    self.capped = True
                    break
            for _ in range(self.policy.concurrency):
                await self._due.put(None)

    async def _admit_all(self, page: RefPage) -> None:
        self.problems += page.problems
        self.truncated |= page.truncated
        self.ended = page.ended
        for ref in page.refs:
            if self.adapter.deleted(ref):
                self.gone.append(ref.native_id)
            elif ref.native_id in self.admitted:
                self.duplicates.add(ref.native_id)  # the first of equal ids is kept
            else:
                self.admitted.add(ref.native_id)
                await self._hand_on(len(self.admitted), ref)

    async def _hand_on(self, number: int, ref: Ref) -> None:
        if ref.raw is not None:
            self._keep(number, ref, self._parsed(ref, ref.raw))
        else:
            await self._due.put((number, ref))

    async def _work(self) -> None:
        while (due := await self._due.get()) is not None:
            number, ref = due
            if self.pages.details >= self.policy.detail_cap:
                self.capped = True
                self.problems.append(_over_cap(ref, self.policy.detail_cap))
                continue
            self._keep(number, ref, await self._detailed(ref))

    async def _detailed(self, ref: Ref) -> list[Listing]:
        try:
            raw = await self.adapter.detail(ref, self.pages.get, self.pages.render)
        except CrawlError as error:
            if error.kind not in _OF_THE_RECORD or error.status in (401, 403):
                raise  # the marketplace or this machine failed, not the record
            self.truncated |= error.kind != "robots"
            self.problems.append(problem(ref.native_id, ref.url, error.kind, str(error)))
            return []
        return self._parsed(ref, raw)

    def _parsed(self, ref: Ref, raw: Any) -> list[Listing]:
        try:
            return [clean(one) for one in self.adapter.parse(raw, ref)]
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            first = (str(error).splitlines() or [""])[0]
            reason = f"malformed: {type(error).__name__}: {first}"[:300]
            site, name = self.adapter.name, ref.native_id
            return [clean(Listing(marketplace=site, native_id=name, name=name, reason=reason))]

    def _keep(self, number: int, ref: Ref, found: list[Listing]) -> None:
        self.done += 1
        self.read_ok += bool(found)
        self.hits += any(one.evidence for one in found)
        for one in found:
            self.rows.add(number, one)
            if (one.reason or "").startswith("malformed"):
                hint = f"{one.reason}; the listing stays, marked as not runnable"
                self.problems.append(problem(one.native_id, ref.url, "malformed", hint))
        name = f"{self.adapter.name}: records"
        self.progress.update(
            name, self.done, max(self.done, len(self.admitted)), rows=len(self.rows)
        )

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.read_ok if self.read_ok else None

    def check_layout(self, memo: Memo) -> None:
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
                "the site's layout changed and the adapter needs a new fixture; yesterday's stay",
            )
        memo.put("hit_rate", self.adapter.name, self.hit_rate)

    def result(self, requests: int, *, changes_only: bool) -> CrawlResult:
        frame, twice = self.rows.frame()
        return CrawlResult(
            marketplace=self.adapter.name,
            frame=frame,
            completeness=self._completeness(),
            requests=requests,
            pages=self.pages.used,
            duplicates=sorted(self.duplicates | twice),
            problems=sorted(self.problems, key=lambda row: (row["native_id"], row["url"])),
            gone=sorted(set(self.gone)),
            changes_only=changes_only,
            hit_rate=self.hit_rate,
        )

    def _completeness(self) -> Completeness:
        if self.capped:
            return "capped"
        return "complete" if self.ended and not self.truncated else "truncated"


def _skipped(marketplace: str, missing: list[str]) -> CrawlResult:
    frame, _ = Rows().frame()
    names = " and ".join(missing)
    variables = " and ".join(
        f"TOOLMILL_MARKETPLACES__{marketplace}__{name}".upper() for name in missing
    )
    hint = f"{marketplace} wants {names}: set {variables}; nothing was asked for, nothing is gone"
    rows = [problem("", "", "key_missing", hint)]
    return CrawlResult(marketplace, frame, KEY_MISSING, 0, 0, [], rows)


def _over_cap(ref: Ref, cap: int) -> dict[str, Any]:
    hint = f"over tonight's detail_cap of {cap:,} pages; the next nights read on"
    return problem(ref.native_id, ref.url, "over_cap", hint)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error a person should read: the crawl's own before what it set off."""
    leaves: list[BaseException] = []
    queue: list[BaseException] = [group]
    while queue:
        error = queue.pop()
        if isinstance(error, BaseExceptionGroup):
            queue += error.exceptions
        else:
            leaves.append(error)
    return next((one for one in leaves if isinstance(one, CrawlError)), leaves[0])
