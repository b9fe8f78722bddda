"""Pages: every page of a crawl as an effect in the ledger, redacted before it is stored.

A page's key holds all that can change what is kept of it: its URL, its revision (or the run date),
how the adapter reads it and how secrets are redacted.
"""

import json
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assets.marketplaces.crawl.browser import PageBrowser
from assets.marketplaces.crawl.fetcher import PageFetcher
from assets.marketplaces.policy import CrawlError, FetchedPage, MarketplaceAdapter, RecordRef
from warehouse.ledger.attempts import EffectOutcome
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.ledger.ledger import Ledger
from warehouse.sanitize.redact import REDACT_VERSION, redact, redact_json
from warehouse.storage.digest import digest

if TYPE_CHECKING:
    from protego import Protego

_LONGEST_DELAY_S = 60.0  # more than a minute between pages is a refusal in other words


class RobotsPolicy:
    """The rules of every host of a crawl, read lazily through `fetch`."""

    def __init__(
        self,
        user_agent: str,
        fetch: Callable[[str], Awaitable[str]],
        slow_down: Callable[[str, float], None],
    ) -> None:
        self.user_agent = user_agent
        self._fetch, self._slow_down = fetch, slow_down
        self._rules: dict[str, Protego] = {}

    async def check(self, url: str) -> None:
        """Raises CrawlError (robots) where the file of the URL's host forbids the URL."""
        url_parts = urlsplit(url)
        host = f"{url_parts.scheme}://{url_parts.netloc}"
        if (rules := self._rules.get(host)) is None:
            rules = self._rules[host] = await self._read(host)
        if not rules.can_fetch(url, self.user_agent):
            raise CrawlError(
                "robots",
                url,
                f"robots.txt of {host} that forbids it to {self.user_agent!r}",
                "leave to read it",
                "ask the site's owner, or read another marketplace; it is not requested",
            )

    async def _read(self, host: str) -> "Protego":
        from protego import Protego

        rules = Protego.parse(await self._fetch(f"{host}/robots.txt"))
        if delay_s := rules.crawl_delay(self.user_agent):
            if delay_s > _LONGEST_DELAY_S:
                raise CrawlError(
                    "robots",
                    f"{host}/robots.txt",
                    f"a crawl-delay of {delay_s:g} s",
                    f"at most {_LONGEST_DELAY_S:g}",
                    "ask the site's owner for another way to read it",
                )
            self._slow_down(host, delay_s)
        return rules


def read_robots(page: FetchedPage) -> str:
    """The text of robots.txt; an HTML page in its place counts as no rules."""
    return "" if "html" in page.content_type else page.decode_text()


_DAY_S = 86_400.0
_SLACK_DAYS = 0.25  # runs do not begin at the same minute


class PageSource:
    """The effects of one crawl of one marketplace in one run."""

    def __init__(
        self,
        adapter: MarketplaceAdapter,
        ledger: Ledger,
        memo: CrawlMemo,
        run_date: str,
        fetcher: PageFetcher,
        browser: PageBrowser,
    ) -> None:
        self.adapter, self.ledger, self.memo, self.run_date = adapter, ledger, memo, run_date
        self.fetcher, self.browser = fetcher, browser
        self.used = 0  # pages looked at, requested or read from the ledger
        self.details = 0  # records' pages requested
        self._robots = RobotsPolicy(
            fetcher.policy.user_agent, self._fetch_robots_txt, fetcher.slow_down
        )

    async def get(
        self, url: str, check: Callable[[FetchedPage], Any], *, ref: RecordRef | None = None
    ) -> Any:
        """See `policy.Get`."""
        self._check_address(url)
        await self._check_robots(url)
        return await self._read(url, check, ref)

    async def render(self, url: str, *, ready: str, ref: RecordRef | None = None) -> str:
        """See `policy.Render`."""
        self._check_address(url)
        await self._check_robots(url)
        memory = digest({"url": url, "ready": ready, "revision": ref.revision if ref else None})
        if self._is_backing_off(memory):
            return ""

        async def rendered() -> EffectOutcome:
            self.fetcher.check_host(url)
            html, complete = await self.browser.render_html(url, ready)
            if not complete:
                raise _NotReady(redact(html))
            return EffectOutcome(redact(html).encode())

        try:
            return (await self._fetch_once("render", url, ref, rendered)).decode()
        except _NotReady as late:  # used now, but not recorded: a later crawl looks again
            tries = (self.memo.get("not_ready", memory) or {}).get("tries", 0) + 1
            self.memo.put("not_ready", memory, {"tries": tries, "at": time.time()})
            return late.html

    def _check_address(self, url: str) -> None:
        """Raises CrawlError where no setting says where the marketplace is."""
        if self.adapter.policy.base_url:
            return
        variable = f"TOOLMILL_MARKETPLACES__{self.adapter.name}__BASE_URL".upper()
        raise CrawlError(
            "missing_key", url, "no base_url", "the marketplace's address", f"set {variable}"
        )

    def _is_backing_off(self, memory: str) -> bool:
        """Whether a page in which nothing appeared is left alone in this run: each costs Chromium
        seconds (74 of them cost 210 s a run), so it is tried after 1, 2, 4 … 32 days."""
        tries = self.memo.get("not_ready", memory)
        if tries is None:
            return False
        wait_s = (2 ** min(tries["tries"] - 1, 5) - _SLACK_DAYS) * _DAY_S
        return time.time() - tries["at"] < wait_s

    async def _read(
        self, url: str, check: Callable[[FetchedPage], Any], ref: RecordRef | None
    ) -> Any:
        async def fetched() -> EffectOutcome:
            self.details += ref is not None
            return EffectOutcome(await self._fetch(url, check))

        self._check_cap(url, ref)
        return json.loads(await self._fetch_once("page", url, ref, fetched))

    def _check_cap(self, url: str, ref: RecordRef | None) -> None:
        """Raises CrawlError where a record's page would be one request above the cap of this run;
        what is in the ledger already is free."""
        cap = self.adapter.policy.detail_cap
        if ref is None or self.details < cap or self.ledger.seen(self._make_key("page", url, ref)):
            return
        raise CrawlError(
            "over_cap",
            url,
            f"{self.details:,} records' pages requested in this run",
            f"at most {cap:,}",
            "the next runs read on; raise detail_cap to read more at once",
        )

    async def _fetch(self, url: str, check: Callable[[FetchedPage], Any]) -> bytes:
        """The bytes to keep of a page: those kept before, where the marketplace says that nothing
        changed since."""
        memory = digest({"url": url, **self._describe_reading()})
        stored = self.memo.get("validators", memory) or {}
        blob = self._read_blob(stored.get("blob"))
        fetched = await self.fetcher.get(url, stored if blob else None)
        if fetched.page is None:
            if blob is None:
                raise CrawlError(
                    "empty", url, "status 304 to an unconditional request", "200", "try later"
                )
            return blob
        value = check(fetched.page)
        data = json.dumps(redact_json(value), ensure_ascii=False).encode()
        if fetched.validators:
            facts = {**fetched.validators, "blob": self.ledger.blobs.put(data)}
            self.memo.put("validators", memory, facts)
        return data

    def _read_blob(self, blob: str | None) -> bytes | None:
        try:
            return self.ledger.blobs.get(blob) if blob else None
        except (KeyError, ValueError, RuntimeError):
            return None

    async def _fetch_once(self, stage: str, url: str, ref: RecordRef | None, fetch: Any) -> bytes:
        self.used += 1
        key = self._make_key(stage, url, ref)
        return await self.ledger.once_async(stage, key, fetch, partition=self.adapter.name)

    def _make_key(self, stage: str, url: str, ref: RecordRef | None) -> str:
        return digest(
            {
                "effect": stage,
                "url": url,
                **self._describe_reading(),
                **self._describe_revision(url, ref),
            }
        )

    def _describe_reading(self) -> dict[str, Any]:
        return {"reading": self.adapter.reading, "redact": REDACT_VERSION}

    def _describe_revision(self, url: str, ref: RecordRef | None) -> dict[str, Any]:
        """What stands for the run in a page's key."""
        if ref is None or ref.revision is None:
            return {"run_date": self.run_date}
        if not ref.weak or self.adapter.policy.refresh_days <= 0:
            return {"revision": ref.revision}
        # The record may have changed where its list does not show it: read it again at times.
        memory = digest({"url": url, "revision": ref.revision})
        first = self.memo.get("first", memory)
        limit_s = self.adapter.policy.refresh_days * _DAY_S
        if first is None or time.time() - first["at"] > limit_s:
            first = {"run_date": self.run_date, "at": time.time()}
            self.memo.put("first", memory, first)
        return {"revision": ref.revision, "first": first["run_date"]}

    async def _check_robots(self, url: str) -> None:
        if self.adapter.robots:
            self.fetcher.check_host(url)
            await self._robots.check(url)

    async def _fetch_robots_txt(self, url: str) -> str:
        async def fetched() -> EffectOutcome:
            try:
                return EffectOutcome(await self._fetch(url, read_robots))
            except CrawlError as error:
                if error.status is None or not 400 <= error.status < 500 or error.status == 429:
                    raise
                return EffectOutcome(b'""')  # RFC 9309, section 2.3.1.3: no file, no restrictions

        return json.loads(await self._fetch_once("page", url, None, fetched))


class _NotReady(Exception):
    """A rendered page in which nothing of what was waited for appeared."""

    def __init__(self, html: str) -> None:
        super().__init__("the page's script did not fill it in within the time-out")
        self.html = html
