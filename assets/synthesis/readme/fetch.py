"""READMEs of repositories on GitHub, each an effect of the ledger: asked for once in a while."""

import asyncio
import re
from collections.abc import Collection, Sequence
from urllib.parse import quote, urlsplit

from assets.marketplaces.fetch.fetcher import Fetcher
from assets.marketplaces.fetch.robots import Robots, read_robots
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from assets.synthesis.readme.extract import LONGEST
from assets.synthesis.readme.policy import ReadmeOptions
from warehouse.ledger.attempts import Outcome
from warehouse.ledger.ledger import Ledger
from warehouse.network.egress import is_loopback
from warehouse.sanitize.redact import REDACT_VERSION, redact
from warehouse.storage.digest import digest

_STAGE = "readme"
_REPOSITORY = re.compile(
    r"(?:git\+)?https?://(?:www\.)?github\.com/([\w.-]{1,100})/([\w.-]{1,100}?)(?:\.git)?"
    r"(?:/(?:tree|blob)/[^/?#]{1,200}/([\w./-]{1,300}))?/?(?:[?#].*)?",
    re.IGNORECASE,
)
_DAY_S = 86_400


def make_readme_url(base_url: str, repository: str | None, subfolder: str | None) -> str | None:
    """Where the README of a repository on GitHub, or of a folder in it, lies; None elsewhere."""
    found = _REPOSITORY.fullmatch((repository or "").strip())
    if not found:
        return None
    folder = (found[3] or subfolder or "").strip("/")
    parts = [found[1], found[2], "HEAD", *folder.split("/"), "README.md"]
    if ".." in parts or "." in parts:
        return None
    return f"{base_url.rstrip('/')}/{'/'.join(quote(part, safe='') for part in parts if part)}"


def fetch_readmes(
    urls: Sequence[str], options: ReadmeOptions, ledger: Ledger, user_agent: str, now: float
) -> tuple[dict[str, str], int]:
    """(README by URL, how many are not had yet): at most `options.most` are asked for. One that is
    not there is "", and one that is due again stays as it was until it is had."""
    found: dict[str, str] = {}
    due: list[str] = []
    for url in urls:
        kept = ledger.seen(_make_key(url, options, now))
        before = kept if kept is not None else ledger.seen(_make_key(url, options, now, back=1))
        if before is not None:
            found[url] = before.decode()
        if kept is None:
            due.append(url)
    asked = due[: options.most]
    found |= asyncio.run(_fetch_all(asked, options, ledger, user_agent, now)) if asked else {}
    return found, len([url for url in urls if url not in found])


async def _fetch_all(
    urls: Sequence[str], options: ReadmeOptions, ledger: Ledger, user_agent: str, now: float
) -> dict[str, str]:
    """Those that could be had, one after the other; a site that fails is left alone until the next
    run."""
    policy = CrawlPolicy(
        base_url=options.base_url,
        requests_per_second=options.requests_per_second,
        concurrency=1,
        max_body_mb=1,
        user_agent=user_agent,
        allow_loopback=is_loopback(urlsplit(options.base_url).hostname or ""),
    )
    fetcher, found = Fetcher(policy), dict[str, str]()

    async def fetch_text(url: str, absent: Collection[int]) -> str:
        try:
            page = (await fetcher.get(url)).page
        except CrawlError as error:
            if error.status not in absent:
                raise
            return ""
        return read_robots(page) if page else ""

    async def fetch(url: str) -> Outcome:
        text = await fetch_text(url, (404, 410))
        return Outcome(redact(text[:LONGEST]).encode("utf-8", "replace"))

    # RFC 9309, section 2.3.1.3: whatever its absence is called, no file is no restriction.
    none = [status for status in range(400, 500) if status != 429]
    robots = Robots(user_agent, lambda url: fetch_text(url, none), fetcher.slow_down)

    try:
        for url in urls:
            try:
                await robots.check(url)
                key = _make_key(url, options, now)
                body = await ledger.once_async(_STAGE, key, lambda url=url: fetch(url))
                found[url] = body.decode()
            except CrawlError as error:
                if error.kind in ("unreachable", "rate_limited", "robots", "http_status"):
                    break
    finally:
        await fetcher.close()
    return found


def _make_key(url: str, options: ReadmeOptions, now: float, back: int = 0) -> str:
    """One URL's key for `refresh_days`, which begin on another day for another URL: all at once
    would be more than a run may ask for. `back`: that many periods before."""
    place = int(digest(url)[:8], 16) % options.refresh_days
    period = (int(now // _DAY_S) + place) // options.refresh_days - back
    return digest({"effect": _STAGE, "url": url, "period": period, "redact": REDACT_VERSION})
