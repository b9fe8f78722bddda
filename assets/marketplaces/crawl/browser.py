"""What one rendered page asks for: of the marketplace's own hosts, and only so much of it.

The browser has its own limits; each request also passes through this process and Playwright's. Of
a page that asked another host for 1.9 MB addresses without end, 783 MB stayed here.
"""

import asyncio
from collections.abc import Set
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpcore2

from assets.marketplaces.payload import make_forbidden, make_too_large, make_unreachable
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from warehouse.network.egress import EgressConnector, PrivateAddress

_SKIPPED = {"image", "media", "font", "manifest", "websocket", "eventsource", "other"}
_REQUESTS = 1_000  # of one page
_ADDRESSES = 1 << 22  # characters of all its addresses
_HOST = 260  # characters of a refused host's name that are kept


class PageRequests:
    """The requests of one page. made: those let through. refused: other hosts, each once.

    passed: the limit that it passed; its context is then closed, so that whoever waits for the page
    hears of it at once."""

    def __init__(self, hosts: Set[str], context: Any) -> None:
        self._hosts, self._context = hosts, context
        self._closing: asyncio.Task[None] | None = None
        self._asked = self._characters = 0
        self.made = 0
        self.refused: set[str] = set()
        self.passed: str | None = None

    async def admit(self, route: Any) -> None:
        """Lets a request through to the marketplace's own hosts only, and only what a page
        needs."""
        request = route.request
        self._asked += 1
        self._characters += len(request.url)
        if self._asked > _REQUESTS or self._characters > _ADDRESSES:
            self.passed = f"{_REQUESTS:,} requests or {_ADDRESSES:,} characters of addresses"
            self._closing = self._closing or asyncio.ensure_future(self._context.close())
            return
        host = urlsplit(request.url).netloc
        if host not in self._hosts:
            self.refused.add(host[:_HOST])
            await route.abort("blockedbyclient")
        elif request.resource_type in _SKIPPED:
            await route.abort("blockedbyclient")
        else:
            self.made += 1
            await route.continue_()

    def check(self, url: str) -> None:
        """Raises CrawlError where the page asked for more than a page needs."""
        if self.passed:
            problem = f"a page that asks for more than {self.passed}"
            raise CrawlError("too_large", url, problem, "a page within it", "nothing: it is a row")


# With five seconds, both of two runs of all tests on two cores lost a page whose script came late.
_READY_MS = 12_000
_PAGE_S = 30.0  # beyond the time-outs of a page: one whose script never rests answers no question
_CLOSE_S = 5.0
_REFUSED = 16  # hosts kept of one page
_PAGES = 2  # at once: a page is a process, and a crawl shares the machine with sandboxes
_ARGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)


class PageBrowser:
    """A lazily started headless Chromium that reads pages of one marketplace's hosts, for the
    tasks of one event loop."""

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy
        self.hosts = {site.netloc for site in policy.sites}
        self.requests = 0
        self.refused: set[str] = set()  # hosts that a page asked and nobody reached
        self.contained: Any = None  # of `policy.contain`
        self._turn = asyncio.Semaphore(_PAGES)
        self._starting = asyncio.Lock()
        self._playwright: Any = None
        self._browser: Any = None
        self._held = ExitStack()

    async def render_html(self, url: str, ready: str) -> tuple[str, bool]:
        """(document, complete) of `url`: once an element matching the CSS selector `ready` is in
        it, or as it stands after twelve seconds, then not complete. Raises CrawlError."""
        async with self._turn:
            async with self._starting:
                await self._start(url)
            limit_s = self.policy.timeout_s + _PAGE_S
            try:
                async with asyncio.timeout(limit_s):
                    return await self._render_html(url, ready)
            except TimeoutError as error:
                await self._end_browser()
                problem = f"a page that does not come to rest within {limit_s:.0f} s"
                raise CrawlError("unreachable", url, problem, "a page", "try later") from error

    async def close(self) -> None:
        """Ends the browser and removes its profile; nothing happens where none was started."""
        await self._end_browser()
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None

    async def _end_browser(self) -> None:
        """Ends it whatever state it is in: the next page starts another."""
        from playwright.async_api import Error

        browser, self._browser = self._browser, None
        if browser is not None:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await browser.close()
        self._held.close()

    async def _render_html(self, url: str, ready: str) -> tuple[str, bool]:
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as NotReady

        context = page_requests = None
        try:
            context = await self._browser.new_context(
                user_agent=self.policy.user_agent, service_workers="block", accept_downloads=False
            )
            context.set_default_timeout(self.policy.timeout_s * 1000)
            page_requests = PageRequests(self.hosts, context)
            await context.route("**/*", page_requests.admit)
            page = await context.new_page()
            response = await page.goto(url, wait_until="domcontentloaded")
            if response is None or response.status != 200:
                status = response.status if response else None
                problem = f"status {status}" if status else "no answer"
                raise CrawlError("http_status", url, problem, "200", "try later", status=status)
            try:
                await page.wait_for_selector(ready, state="attached", timeout=_READY_MS)
                complete = True
            except NotReady:
                complete = False  # the adapter says what is missing
            html = await page.content()
            if len(html) > (cap := self.policy.max_body_bytes):
                raise make_too_large(url, f"{len(html):,} characters of rendered HTML", cap)
            return html, complete
        except Error as error:
            if page_requests is not None:
                page_requests.check(url)
            raise self._explain_failure(url, error) from error
        finally:
            if page_requests is not None:
                self.requests += page_requests.made
                self.refused |= set(sorted(page_requests.refused)[:_REFUSED])
            if context is not None:
                with suppress(Error, TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        await context.close()

    def _explain_failure(self, url: str, error: Exception) -> CrawlError:
        if self.contained and (breach := self.contained.breach):
            problem = f"a page at which the browser passed its limit, {breach}"
            return CrawlError("too_large", url, problem, "a page within it", "nothing: it is a row")
        first = str(error).splitlines()[0]
        return CrawlError("unreachable", url, f"the browser's {first!r}", "a page", "try later")

    async def _start(self, url: str) -> None:
        if self._browser is not None:
            if self._browser.is_connected():
                return
            await self._end_browser()  # a page was its end
        if not self.policy.chromium:
            raise CrawlError(
                "no_browser",
                url,
                "no Chromium",
                "one, because this page's config appears only after its script ran",
                "install it (Debian: apt-get install chromium) or set TOOLMILL_CHROMIUM",
            )
        from playwright.async_api import Error, async_playwright

        rules = await self._make_resolver_rules(url)
        self.contained = None  # where the user chose no sandbox; else held until the browser ends
        if self.policy.contain is not None:
            hosts = frozenset(map(_read_host, self.policy.sites))
            allow = self.policy.allow_loopback
            opened = self.policy.contain(self.policy.chromium, hosts, allow_loopback=allow)
            try:
                self.contained = self._held.enter_context(opened)
            except (RuntimeError, ValueError) as error:  # none here, or not for a Chromium there
                expected = "a browser in the sandbox"
                raise CrawlError("no_browser", url, str(error), expected, "see above") from error
        more = self.contained.args if self.contained else (f"--host-resolver-rules={rules}",)
        program = self.contained.program if self.contained else self.policy.chromium
        self._playwright = self._playwright or await async_playwright().start()
        try:
            self._browser = await self._playwright.chromium.launch(
                executable_path=program, headless=True, args=[*_ARGS, *more]
            )
            if self.contained:
                self.contained.watch()
        except (Error, OSError) as error:
            self._held.close()
            first = str(error).splitlines()[0]
            raise CrawlError(
                "no_browser",
                url,
                f"{self.policy.chromium} failing with {first!r}",
                "a Chromium that starts",
                "reinstall it or set TOOLMILL_CHROMIUM",
            ) from error

    async def _make_resolver_rules(self, url: str) -> str:
        """Pins the marketplace's names to the addresses that were judged; no other resolves."""
        rules, connector = [], EgressConnector(allow_loopback=self.policy.allow_loopback)
        for host in sorted(self.hosts):
            url_parts = urlsplit(f"//{host}")
            name, port = url_parts.hostname or "", url_parts.port or 443
            try:
                address = (await connector.find_addresses(name, port))[0]
            except PrivateAddress as error:
                raise make_forbidden(url, str(error), {"a public address"}) from error
            except httpcore2.ConnectError as error:
                raise make_unreachable(url, error) from error
            rules.append(f"MAP {name} {f'[{address}]' if ':' in address else address}")
        return ", ".join([*rules, "MAP * ~NOTFOUND"])


def _read_host(site: SplitResult) -> tuple[str, int]:
    return (site.hostname or "").lower(), site.port or (80 if site.scheme == "http" else 443)
