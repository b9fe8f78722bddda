"""Policy: how a crawl may behave, what it may fail with, and what an adapter promises.

What belongs here: the plain types that every marketplace module shares.
What does not: sending requests (`http.py`) and driving a crawl (`crawl.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from assets.marketplaces.listing import Listing

Completeness = Literal["complete", "capped", "truncated"]


@dataclass(frozen=True)
class CrawlPolicy:
    """How one marketplace is crawled. Rates in requests/s (0: no limit), sizes in bytes after
    decompression, times in seconds; `chromium` is the browser's path, None where there is none."""

    base_url: str
    user_agent: str = "toolmill"
    page_cap: int = 2000
    max_body_bytes: int = 16 * 1024 * 1024
    requests_per_second: float = 1.0
    allow_loopback: bool = False
    chromium: str | None = "/usr/bin/chromium"
    timeout_s: float = 30.0


class CrawlError(RuntimeError):
    """A crawl that cannot go on: what was fetched, what was found, what was due, and the mend.

    Kinds: unreachable, http_status, wrong_type, truncated, missing_key, empty, too_large,
    forbidden_host, robots, layout_changed, no_browser.
    """

    def __init__(self, kind: str, url: str, found: str, expected: str, mend: str) -> None:
        self.kind, self.url, self.found, self.expected, self.mend = kind, url, found, expected, mend
        super().__init__(f"{url}: found {found}, expected {expected} ({kind}); {mend}")


class UnknownMarketplace(LookupError):
    """No adapter of this name is installed; the message names those that are."""


@dataclass(frozen=True)
class Ref:
    """One record a marketplace names. `raw` is the record where the list already holds all of it;
    `revision` (lastmod, updatedAt) lets an unchanged record's page be read from the ledger."""

    native_id: str
    url: str
    revision: str | None = None
    raw: Any = None


@dataclass(frozen=True)
class RefPage:
    """One page of a marketplace's list. `ended` on the last page of a list seen to its end."""

    refs: list[Ref]
    ended: bool = False
    problems: list[dict[str, Any]] = field(default_factory=list)


class Get(Protocol):
    """Fetches one URL through the ledger: `check` runs on the response inside the effect, so that
    what it refuses is not recorded as done. `revision` None keys the effect by the night."""

    def __call__(
        self,
        url: str,
        check: Callable[[Any], bytes],
        *,
        revision: str | None = None,
        stage: str = "page",
    ) -> bytes: ...


class Render(Protocol):
    """The page's HTML after its scripts ran, through the ledger."""

    def __call__(self, url: str, *, ready: str, revision: str | None = None) -> str: ...


class Adapter(Protocol):
    """One marketplace: where its list is, how a record is fetched, how it is read."""

    name: ClassVar[str]
    policy: CrawlPolicy

    def refs(self, get: Get, since: str | None = None) -> Iterator[RefPage]:
        """Pages of the list; with `since` (RFC 3339) only what changed, where that is offered."""
        ...

    def detail(self, ref: Ref, get: Get, render: Render) -> Any:
        """The raw record of a ref whose `raw` is None."""
        ...

    def parse(self, raw: Any, ref: Ref) -> list[Listing]:
        """Pure: listings of one raw record. Raises ValueError where the record is malformed."""
        ...


@dataclass(frozen=True)
class CrawlResult:
    """What one crawl saw. Only a `complete` one may mark a server gone.

    `requests` were sent tonight, `pages` were used (sent or read from the ledger); `problems` are
    rows {native_id, url, status, error_kind, hint}; `gone` are ids the marketplace calls deleted.
    """

    marketplace: str
    listings: list[Listing]
    completeness: Completeness
    requests: int
    pages: int
    duplicates: list[str]
    problems: list[dict[str, Any]]
    gone: list[str] = field(default_factory=list)


def problem(native_id: str, url: str, kind: str, hint: str) -> dict[str, Any]:
    """A row about one record that could not be read."""
    return {
        "native_id": native_id,
        "url": url,
        "status": "failed",
        "error_kind": kind,
        "hint": hint,
    }
