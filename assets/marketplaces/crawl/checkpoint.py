"""Checkpoint: since when a marketplace that offers it need only say what changed.

The time is the newest edit that the marketplace's own clock has stamped and that ours has reached:
its clock may run behind ours, and one record stamped with next year must not hide every change
until then. Since the newest record itself is asked for again, an honest answer is never empty.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from assets.marketplaces.result import CrawlResult
from warehouse.ledger.crawl_state import Memo
from warehouse.storage.tables import Head

_SCOPE = "checkpoint"
_FULL_DAYS = 7  # a full pass at least this often finds what a pass over changes missed
_MARGIN_S = 86_400.0  # for stamps that are set before a record shows; a day of changes costs pages
_DAY_S = 86_400.0


def find_checkpoint(
    memo: Memo, marketplace: str, head: Head | None, stamps: Iterable[str | None], *, now: float
) -> str | None:
    """RFC 3339 time from which changes are wanted, or None for a full pass: there is no complete
    one to build on, it is too old, or the table's current version is not the one it ended in.
    `stamps` are the times of last edit of that version's listings, `now` is in epoch seconds."""
    known = memo.get(_SCOPE, marketplace)
    if not known or head is None or known["table"] != head.digest:
        return None
    if now - known["full_at"] > _FULL_DAYS * _DAY_S:
        return None
    reached = [at for stamp in stamps if (at := _parse_epoch(stamp)) is not None and at <= now]
    if not reached:
        return None
    return datetime.fromtimestamp(max(reached) - _MARGIN_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def save_checkpoint(
    memo: Memo, marketplace: str, head: Head | None, result: CrawlResult, *, begun: float
) -> None:
    """Remembers a complete pass that was published; any other leaves the last one standing only
    if it changed nothing."""
    if head is None or result.completeness != "complete":
        return
    known = memo.get(_SCOPE, marketplace) or {}
    full_at = known.get("full_at", begun) if result.changes_only else begun
    memo.put(_SCOPE, marketplace, {"full_at": full_at, "table": head.digest})


def _parse_epoch(stamp: str | None) -> float | None:
    try:
        at = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
