"""What a user can set of how one marketplace is read; the crawl adds what it works out."""

from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
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
