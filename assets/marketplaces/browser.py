"""Browser: one Chromium per crawl, for facts that only the rendered page holds.

What belongs here: starting it, keeping it on the marketplace's host, and the rendered HTML.
What does not: reading the HTML (`page.py`).

Playwright's synchronous API refuses to run inside an event loop, so the browser lives in a thread
of its own; it starts with the first page and uses a throwaway profile.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from assets.marketplaces.jail import launcher
from assets.marketplaces.policy import CrawlError, CrawlPolicy

_SKIPPED = {"image", "media", "font", "manifest", "websocket", "eventsource", "other"}
_READY_MS = 5000
_ARGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)


class Browser:
    """A lazily started headless Chromium that reads pages of one host."""

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy
        self.host = urlsplit(policy.base_url).netloc
        self.requests = 0
        self.blocked: list[str] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._playwright: Any = None
        self._browser: Any = None
        self._folder: TemporaryDirectory[str] | None = None
        self.contained = False

    def html(self, url: str, ready: str) -> tuple[str, bool]:
        """(document, complete) of `url`: once an element matching the CSS selector `ready` is in
        it, or as it stands after five seconds, then not complete. Raises CrawlError."""
        return self._thread.submit(self._html, url, ready).result()

    def close(self) -> None:
        try:
            self._thread.submit(self._stop).result()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _html(self, url: str, ready: str) -> tuple[str, bool]:
        from playwright.sync_api import Error, TimeoutError

        self._start(url)
        context = self._browser.new_context(
            user_agent=self.policy.user_agent, service_workers="block", accept_downloads=False
        )
        try:
            context.set_default_timeout(self.policy.timeout_s * 1000)
            context.route("**/*", self._admit)
            page = context.new_page()
            response = page.goto(url, wait_until="domcontentloaded")
            if response is None or response.status != 200:
                status = response.status if response else "none"
                raise CrawlError("http_status", url, f"status {status}", "200", "try later")
            try:
                page.wait_for_selector(ready, state="attached", timeout=_READY_MS)
                complete = True
            except TimeoutError:
                complete = False  # the adapter says what is missing
            html = page.content()
            if len(html) > self.policy.max_body_bytes:
                raise CrawlError(
                    "too_large",
                    url,
                    f"{len(html):,} characters of rendered HTML",
                    f"at most {self.policy.max_body_bytes:,}",
                    "raise max_body_bytes if the marketplace is trusted",
                )
            return html, complete
        except Error as error:
            first = str(error).splitlines()[0]
            raise CrawlError(
                "unreachable", url, f"the browser's {first!r}", "a page", "try later"
            ) from error
        finally:
            context.close()

    def _admit(self, route: Any) -> None:
        """Lets a request through to the marketplace's own host only, and only what a page needs."""
        request = route.request
        if urlsplit(request.url).netloc != self.host:
            self.blocked.append(request.url)
            route.abort("blockedbyclient")
        elif request.resource_type in _SKIPPED:
            route.abort("blockedbyclient")
        else:
            self.requests += 1
            route.continue_()

    def _start(self, url: str) -> None:
        if self._browser is not None:
            return
        if not self.policy.chromium:
            raise CrawlError(
                "no_browser",
                url,
                "no Chromium",
                "one, because this page's config appears only after its script ran",
                "install it (Debian: apt-get install chromium) or set TOOLMILL_CHROMIUM",
            )
        from playwright.sync_api import Error, sync_playwright

        hostname = urlsplit(self.policy.base_url).hostname
        self._folder = TemporaryDirectory(prefix="toolmill-chromium-", ignore_cleanup_errors=True)
        jailed = launcher(self.policy.chromium, Path(self._folder.name))
        self.contained = jailed is not None
        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=jailed or self.policy.chromium,
                headless=True,
                # Names other than the marketplace's do not even resolve.
                args=[*_ARGS, f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {hostname}"],
            )
        except Error as error:
            self._playwright.stop()
            first = str(error).splitlines()[0]
            raise CrawlError(
                "no_browser",
                url,
                f"{self.policy.chromium} failing with {first!r}",
                "a Chromium that starts",
                "reinstall it or set TOOLMILL_CHROMIUM",
            ) from error

    def _stop(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._playwright.stop()
            self._browser = None
        if self._folder is not None:
            self._folder.cleanup()
