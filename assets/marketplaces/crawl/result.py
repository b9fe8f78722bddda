"""What one crawl saw: its rows, how it ended, and what could not be read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import polars as pl

from assets.marketplaces.listing import Listing, read_row
from assets.marketplaces.listing_table import LISTINGS
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.storage.tables import TableHead

# How a crawl ended. Only a `complete` pass may mark a server gone.
Completeness = Literal["complete", "capped", "truncated", "skipped: key missing", "failed"]


@dataclass(frozen=True)
class CrawlResult:
    """What one crawl saw. `frame` holds the listings as rows of LISTINGS, sorted by native id:
    columns take a fifth of the memory of objects, and a marketplace may list 100,000 servers.

    `requests` were sent in this run, `pages` were used (sent or read from the ledger); `problems`
    are rows {native_id, url, status, error_kind, hint}; `gone` are ids that it calls deleted.
    `changes_only` says that the listings are those that changed since the last complete pass;
    `hit_rate` is the share of records that were read and held launch evidence.
    """

    marketplace: str
    frame: pl.DataFrame
    completeness: Completeness
    requests: int
    pages: int
    duplicates: list[str]
    problems: list[dict[str, Any]]
    gone: list[str] = field(default_factory=list)
    changes_only: bool = False
    hit_rate: float | None = None

    @property
    def listings(self) -> list[Listing]:
        """The listings as objects, rebuilt on every access."""
        return [read_row(row) for row in self.frame.iter_rows(named=True)]

    @property
    def unread(self) -> set[str]:
        """Ids of records that are listed but could not be read: not gone, whatever else is."""
        return {row["native_id"] for row in self.problems if row["native_id"]}


def make_problem(native_id: str, url: str, kind: str, hint: str) -> dict[str, Any]:
    """A row about one record that could not be read."""
    return {
        "native_id": native_id,
        "url": url,
        "status": "failed",
        "error_kind": kind,
        "hint": hint,
    }


_SCOPE = "checkpoint"
_FULL_DAYS = 7  # a full pass at least this often finds what a pass over changes missed
_MARGIN_S = 86_400.0  # for stamps that are set before a record shows; a day of changes costs pages
_DAY_S = 86_400.0


def find_checkpoint(
    memo: CrawlMemo,
    marketplace: str,
    head: TableHead | None,
    stamps: Iterable[str | None],
    *,
    now: float,
) -> str | None:
    """RFC 3339 time from which changes are wanted, or None for a full pass: there is no complete
    one to build on, it is too old, or the table's current version is not the one it ended in.
    `stamps` are the times of last edit of that version's listings, `now` is in epoch seconds."""
    checkpoint = memo.get(_SCOPE, marketplace)
    if not checkpoint or head is None or checkpoint["table"] != head.digest:
        return None
    if now - checkpoint["full_at"] > _FULL_DAYS * _DAY_S:
        return None
    reached = [at for stamp in stamps if (at := _parse_epoch(stamp)) is not None and at <= now]
    if not reached:
        return None
    return datetime.fromtimestamp(max(reached) - _MARGIN_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def save_checkpoint(
    memo: CrawlMemo, marketplace: str, head: TableHead | None, result: CrawlResult, *, begun: float
) -> None:
    """Remembers a complete pass that was published; any other leaves the last one standing only
    if it changed nothing."""
    if head is None or result.completeness != "complete":
        return
    checkpoint = memo.get(_SCOPE, marketplace) or {}
    full_at = checkpoint.get("full_at", begun) if result.changes_only else begun
    memo.put(_SCOPE, marketplace, {"full_at": full_at, "table": head.digest})


def _parse_epoch(stamp: str | None) -> float | None:
    try:
        at = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def merge_listings(previous: pl.DataFrame, result: CrawlResult) -> pl.DataFrame:
    """The rows of LISTINGS to publish after a crawl.

    Only a complete pass may say that a server is gone, and not of a record that is still listed
    but could not be read in this run. A pass over changes takes away only what the marketplace
    itself calls deleted. A record that named several servers stands as `id#key`: it goes by its id.
    """
    listing_ids = result.frame["listing_id"].implode()
    record = pl.col("native_id").str.split("#").list.first()
    read_again = result.frame.select(record)["native_id"].unique().implode()
    earlier = previous.filter(~pl.col("listing_id").is_in(listing_ids) & ~record.is_in(read_again))
    if result.changes_only:
        earlier = earlier.filter(~record.is_in(pl.Series(result.gone, dtype=pl.String).implode()))
    elif result.completeness == "complete":
        unread = pl.Series(sorted(result.unread), dtype=pl.String).implode()
        earlier = earlier.filter(record.is_in(unread))
    return pl.concat([result.frame, earlier]).select(list(LISTINGS.columns)).sort(LISTINGS.key)
