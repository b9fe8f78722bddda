"""Every publication of snapshots is folded once, whatever the clock said when it was made."""

import time
from typing import Any

import pytest

from assets.contracts.changes import CHANGES, READ_RULE, fold_changes, fold_origins
from assets.contracts.snapshot import SNAPSHOTS
from tests.contracts.history.test_origins import row
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse

AHEAD_S = 400 * 86_400.0


def publish(tables: Tables, market: str, *rows: dict[str, Any]) -> None:
    frame = SNAPSHOTS.frame({**item, "marketplace": market} for item in rows)
    tables.promote(tables.stage(SNAPSHOTS, frame, market), "-", [])


def fold(tables: Tables) -> list[str]:
    """The contracts that tools have changed to, after the fold is published."""
    rows, read = fold_changes(tables)
    tables.promote(
        tables.stage(CHANGES, CHANGES.frame(rows)), "-", [{"rule": READ_RULE, "observed": read}]
    )
    return sorted(item["to_digest"] for item in rows)


def test_what_is_published_after_the_clock_was_put_back_is_folded(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = warehouse.tables
    publish(tables, "a", row("t", "A"))
    publish(tables, "b", row("t", "A", "npm:b"))
    now = time.time()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now + AHEAD_S)
        publish(tables, "a", row("t", "B"))
        assert fold(tables) == ["c1:B"]
        fold_origins(tables, "a").keep(tables, "-")
    publish(tables, "a", row("t", "C"))
    publish(tables, "b", row("t", "D", "npm:b"))
    assert fold(tables) == ["c1:B", "c1:C", "c1:D"]
    assert fold(tables) == ["c1:B", "c1:C", "c1:D"], "once"
    [origin] = fold_origins(tables, "a").state.values()
    assert [origin[name] for name in ("first_digest", "before_digest", "contract_digest")] == [
        "c1:A",
        "c1:B",
        "c1:C",
    ]


def test_changes_of_before_the_mark_go_on_from_when_they_were_published(
    warehouse: Warehouse,
) -> None:
    tables = warehouse.tables
    publish(tables, "a", row("t", "A"))
    publish(tables, "a", row("t", "B"))
    rows, _ = fold_changes(tables)
    tables.promote(tables.stage(CHANGES, CHANGES.frame(rows)), "-", [])
    publish(tables, "a", row("t", "C"))
    assert fold(tables) == ["c1:B", "c1:C"]


def test_a_marketplace_that_is_new_since_the_clock_was_put_back_is_folded_whole(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, now = warehouse.tables, time.time()

    def move_clock(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now + seconds)

    for seconds, version in ((100, "A"), (200, "B")):
        move_clock(seconds)
        publish(tables, "a", row("t", version))
    move_clock(2000)
    assert fold(tables) == ["c1:B"]
    result: list[str] = []
    for seconds, version in ((1000, "A"), (1001, "C"), (1002, "D")):
        move_clock(seconds)
        publish(tables, "b", row("t", version, "npm:b"))
        result = fold(tables)
    assert result == ["c1:B", "c1:C", "c1:D"]
