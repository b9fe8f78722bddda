"""What a host's robots.txt allows us (RFC 9309), with Google's wildcards and crawl-delay."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assets.marketplaces.policy import CrawlError, FetchedPage

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
