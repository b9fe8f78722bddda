"""What one rendered page asks for: of the marketplace's own hosts, and only so much of it.

The browser has its own limits; each request also passes through this process and Playwright's. Of
a page that asked another host for 1.9 MB addresses without end, 783 MB stayed here.
"""

import asyncio
from collections.abc import Set
from typing import Any
from urllib.parse import urlsplit

from assets.marketplaces.policy import CrawlError

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
            found = f"a page that asks for more than {self.passed}"
            raise CrawlError("too_large", url, found, "a page within it", "nothing: it is a row")
