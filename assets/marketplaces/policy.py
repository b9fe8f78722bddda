"""Policy: how a crawl may behave, what it may fail with, and what an adapter promises."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import SplitResult, urlsplit

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from assets.marketplaces.listing import Listing


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CrawlSettings:
    """Where a marketplace is, how much of it is read, and how politely. Rates in requests/s.

    `page_cap` bounds the list pages of a pass, `detail_cap` the records' pages requested in one
    run: those already stored are free, so a marketplace that is larger fills up over runs.
    """

    base_url: str = Field(default="", description="of its API, or of the site itself")
    site_url: str | None = Field(
        default=None, description="the site with the sitemap, where the API has another host"
    )
    scope: tuple[str, ...] = Field(
        default=(), description="which of its lists are read; empty: the adapter's default"
    )
    page_cap: int = Field(default=200, ge=1, description="most list pages a crawl reads")
    detail_cap: int = Field(
        default=5000, ge=0, description="most records' pages requested in a run"
    )
    requests_per_second: float = Field(default=2.0, ge=0)
    concurrency: int = Field(default=4, ge=1, le=64, description="requests in flight")
    refresh_days: float = Field(
        default=7.0,
        ge=0,
        description="a record's page with no revision of its own is read again; 0: never",
    )
    max_body_mb: float = Field(default=16, gt=0, description="of one response, unpacked")
    paths: tuple[Path, ...] = Field(
        default=(), description="private: files and folders with mcpServers"
    )

    @property
    def sites(self) -> list[SplitResult]:
        """The addresses whose hosts may be asked."""
        return [urlsplit(site) for site in (self.base_url, self.site_url or self.base_url)]

    @property
    def max_body_bytes(self) -> int:
        """The most bytes of one response after decompression."""
        return int(self.max_body_mb * 1024 * 1024)


@pydantic_dataclass(frozen=True)
class CrawlPolicy(CrawlSettings):
    """How one marketplace is crawled: its settings, and what is worked out from all of them.

    `keys` are what `needs` and `takes` name; `chromium` is the browser's path, None where there is
    none; `requests_per_second` 0 is no limit. `contain(chromium, hosts, allow_loopback=…)` is a
    context with `program` and `args` to start in its place, `watch()` once it was started,
    `refused` hosts, and the `breach` that ended it; None runs the browser without a sandbox.
    """

    user_agent: str = "toolmill"
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_loopback: bool = False
    chromium: str | None = "/usr/bin/chromium"
    contain: Callable[..., AbstractContextManager[Any]] | None = field(default=None, repr=False)
    timeout_s: float = 30.0


class CrawlError(RuntimeError):
    """A crawl that cannot go on: what was fetched, what was found, what was due, and the fix.

    Kinds: unreachable, http_status, rate_limited, wrong_type, truncated, missing_key, empty,
    too_large, forbidden_host, robots, over_cap, layout_changed, no_browser, unreadable.
    """

    def __init__(
        self, kind: str, url: str, found: str, expected: str, fix: str, *, status: int | None = None
    ) -> None:
        self.kind, self.url, self.found, self.expected, self.fix = kind, url, found, expected, fix
        self.status = status  # of the HTTP response, where there was one
        super().__init__(f"{url}: found {found}, expected {expected} ({kind}); {fix}")

    @property
    def passing(self) -> bool:
        """Whether the pages read so far still fit what a later try of the same run will read."""
        return self.kind in ("unreachable", "http_status", "rate_limited", "no_browser")


class UnknownMarketplace(LookupError):
    """No adapter of this name is installed; the message names those that are."""


@dataclass(frozen=True)
class FetchedPage:
    """A response with status 200, decompressed."""

    url: str
    content_type: str  # lower case, without parameters
    body: bytes

    def decode_text(self) -> str:
        """The body as UTF-8; broken bytes become U+FFFD."""
        return self.body.decode("utf-8", errors="replace")


@dataclass(frozen=True)
class RecordRef:
    """One record a marketplace names. `raw` is the record where the list already holds all of it.

    `revision` changes when the record does: an unchanged one's page is read from the ledger, not
    requested. `weak` says that it may miss a change (a digest of what the list shows, not the
    marketplace's own lastmod or updatedAt): such a page is read again after `refresh_days`.
    """

    native_id: str
    url: str
    revision: str | None = None
    raw: Any = None
    weak: bool = False


@dataclass(frozen=True)
class RecordPage:
    """One page of a marketplace's list. `ended` on the last page of a list seen to its end;
    `truncated` says that the marketplace holds more than it shows (a result cap)."""

    refs: list[RecordRef]
    ended: bool = False
    problems: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False


class FetchPage(Protocol):
    """Fetches one URL through the ledger and returns what `check` made of the response: a JSON
    value or a text, secrets redacted. `check` raises CrawlError where the response is not what is
    due, and then nothing is recorded as done. `ref` is given for a record's own page: its revision
    keys the effect; without one the run date does."""

    async def __call__(
        self, url: str, check: Callable[[FetchedPage], Any], *, ref: RecordRef | None = None
    ) -> Any: ...


class RenderPage(Protocol):
    """The page's HTML after its scripts ran, through the ledger; `ready` is a CSS selector."""

    async def __call__(self, url: str, *, ready: str, ref: RecordRef | None = None) -> str: ...


# Sends a form and returns the JSON object that answers; never recorded, for tokens only.
PostForm = Callable[[str, Mapping[str, str]], Awaitable[dict[str, Any]]]


class MarketplaceAdapter(ABC):
    """One marketplace: where its list is, how a record is fetched, how it is read."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # keys without which the partition is skipped
    takes: ClassVar[tuple[str, ...]] = ()  # keys that are sent if they are set
    scopes: ClassVar[tuple[str, ...]] = ()  # the lists `policy.scope` chooses from
    robots: ClassVar[bool] = True  # robots.txt governs it; False for a documented API
    reading: ClassVar[int] = 1  # raise it when what `check` keeps of a page changes
    alarm: ClassVar[bool] = False  # few records with launch evidence mean a changed layout

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy

    def missing(self) -> list[str]:
        """Settings without which nothing can be read: the partition is skipped."""
        return [name for name in self.needs if not self.policy.keys.get(name)]

    async def headers(self, post: PostForm) -> dict[str, str]:
        """Headers of every request to the base URL's host, from `policy.keys`."""
        return {}

    @abstractmethod
    def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        """Pages of the list."""

    async def detail(self, ref: RecordRef, get: FetchPage, render: RenderPage) -> Any:
        """The raw record of a ref whose `raw` is None."""
        return ref.raw

    @abstractmethod
    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """Pure: listings of one raw record. Raises ValueError where the record is malformed."""
