"""Crawl: drives one adapter from its list to listings, every page through the ledger.

What belongs here: finding adapters, keys of effects, caps, completeness, the layout alarm.
What does not: what a marketplace serves (one module each) and how a request is sent (`http.py`).
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from assets.marketplaces.browser import Browser
from assets.marketplaces.http import Fetcher
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import (
    Adapter,
    Completeness,
    CrawlError,
    CrawlPolicy,
    CrawlResult,
    Ref,
    UnknownMarketplace,
    problem,
)
from assets.marketplaces.redact import redact
from warehouse.digest import digest
from warehouse.effects.ledger import Ledger, Outcome
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
_OF_THE_RECORD = ("http_status", "too_large", "forbidden_host")
_ALARM_FROM = 4  # fewer pages say nothing about a layout
_ALARM_BELOW = 0.5  # share of pages with a config


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
    night: str,
    progress: Progress | None = None,
    since: str | None = None,
) -> CrawlResult:
    """One pass over a marketplace. Run again in the same night, no page is fetched twice; pages of
    unchanged records are read from earlier nights where the marketplace gives a revision.

    Raises CrawlError where the list cannot be read or the layout changed; a single record that
    cannot be read is a problem row. With `since` the result holds only what changed.
    """
    with Fetcher(adapter.policy) as fetcher, Browser(adapter.policy) as browser:
        pages = _Pages(adapter.name, ledger, night, fetcher, browser)
        seen = _Seen(adapter, pages, progress or Silent())
        seen.list_all(since)
        seen.read_all()
        return seen.result(fetcher.requests + browser.requests)


class _Pages:
    """The two kinds of effect of a crawl, keyed by what can change their result."""

    def __init__(
        self, marketplace: str, ledger: Ledger, night: str, fetcher: Fetcher, browser: Browser
    ) -> None:
        self.marketplace, self.ledger, self.night = marketplace, ledger, night
        self.fetcher, self.browser = fetcher, browser
        self.used = 0

    def get(
        self,
        url: str,
        check: Callable[[Any], bytes],
        *,
        revision: str | None = None,
        stage: str = "page",
    ) -> bytes:
        return self._once(stage, url, revision, lambda: check(self.fetcher.get(url)))

    def render(self, url: str, *, ready: str, revision: str | None = None) -> str:
        def rendered() -> bytes:
            self.fetcher.check_host(url)
            html, complete = self.browser.html(url, ready)
            if not complete:
                raise _NotReady(html)
            return redact(html).encode()

        try:
            return self._once("render", url, revision, rendered).decode()
        except _NotReady as late:  # used tonight, but not recorded: the next crawl looks again
            return redact(late.html)

    def _once(
        self, stage: str, url: str, revision: str | None, fetch: Callable[[], bytes]
    ) -> bytes:
        self.used += 1
        moving = {"revision": revision} if revision else {"night": self.night}
        key = digest({"effect": stage, "url": url, **moving})
        return self.ledger.once(stage, key, lambda: Outcome(fetch()), partition=self.marketplace)


class _NotReady(Exception):
    """A rendered page in which nothing of what was waited for appeared."""

    def __init__(self, html: str) -> None:
        super().__init__("the page's script did not fill it in within the time-out")
        self.html = html


class _Seen:
    """What a crawl has seen so far."""

    def __init__(self, adapter: Adapter, pages: _Pages, progress: Progress) -> None:
        self.adapter, self.pages, self.progress = adapter, pages, progress
        self.refs: dict[str, Ref] = {}
        self.listings: dict[str, Listing] = {}
        self.duplicates: list[str] = []
        self.problems: list[dict[str, Any]] = []
        self.gone: list[str] = []
        self.completeness: Completeness = "truncated"

    @property
    def spent(self) -> bool:
        return self.pages.used >= self.adapter.policy.page_cap

    def list_all(self, since: str | None) -> None:
        """Reads the list to its end or to the cap; the first of equal ids is kept."""
        for number, page in enumerate(self.adapter.refs(self.pages.get, since), 1):
            self.problems += page.problems
            for ref in page.refs:
                self._admit(ref)
            self.progress.update(
                f"{self.adapter.name}: list", number, number, records=len(self.refs)
            )
            if page.ended:
                self.completeness = "complete"
            elif self.spent:
                self.completeness = "capped"
                return

    def _admit(self, ref: Ref) -> None:
        deleted = getattr(self.adapter, "deleted", None)
        if deleted and deleted(ref):
            self.gone.append(ref.native_id)
        elif ref.native_id in self.refs:
            self.duplicates.append(ref.native_id)
        else:
            self.refs[ref.native_id] = ref

    def read_all(self) -> None:
        """Reads every record; raises CrawlError when too few pages still show a config."""
        read = configs = 0
        for number, ref in enumerate(self.refs.values(), 1):
            if ref.raw is None and self.spent:
                self.completeness = "capped"
                break
            found = self._read(ref)
            read += bool(found)
            configs += any(one.evidence for one in found)
            for one in found:
                self._keep(one)
            self.progress.update(
                f"{self.adapter.name}: records", number, len(self.refs), listings=len(self.listings)
            )
        if read >= _ALARM_FROM and configs < _ALARM_BELOW * read:
            raise CrawlError(
                "layout_changed",
                self.adapter.policy.base_url,
                f"a config in only {configs} of {read} records",
                f"one in at least {_ALARM_BELOW:.0%}",
                "the site's layout changed and the adapter needs a new fixture; yesterday's stay",
            )

    def _read(self, ref: Ref) -> list[Listing]:
        raw = ref.raw
        if raw is None:
            try:
                raw = self.adapter.detail(ref, self.pages.get, self.pages.render)
            except CrawlError as error:
                if error.kind not in _OF_THE_RECORD:
                    raise  # the marketplace or this machine failed, not the record
                self.completeness = "truncated"
                self.problems.append(problem(ref.native_id, ref.url, error.kind, str(error)))
                return []
        try:
            return self.adapter.parse(raw, ref)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            first = (str(error).splitlines() or [""])[0]
            reason = f"malformed: {type(error).__name__}: {first}"[:300]
            site, name = self.adapter.name, ref.native_id
            return [Listing(marketplace=site, native_id=name, name=name, reason=reason)]

    def _keep(self, listing: Listing) -> None:
        if listing.native_id in self.listings:
            self.duplicates.append(listing.native_id)
            return
        self.listings[listing.native_id] = listing
        if (listing.reason or "").startswith("malformed"):
            url = self.refs[listing.native_id].url if listing.native_id in self.refs else ""
            hint = f"{listing.reason}; the listing stays, marked as not runnable"
            self.problems.append(problem(listing.native_id, url, "malformed", hint))

    def result(self, requests: int) -> CrawlResult:
        return CrawlResult(
            marketplace=self.adapter.name,
            listings=sorted(self.listings.values(), key=lambda one: one.native_id),
            completeness=self.completeness,
            requests=requests,
            pages=self.pages.used,
            duplicates=sorted(set(self.duplicates)),
            problems=self.problems,
            gone=sorted(self.gone),
        )
