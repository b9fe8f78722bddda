"""What a tool was before: its first contract and the last other one, by a name of its own."""

import json
from typing import Any

from assets.contracts.changes import advance_state, fold_origins
from assets.contracts.snapshot import SNAPSHOTS
from warehouse.store import Warehouse

MARKET = "registry"


def row(tool: str, version: str, server: str = "npm:a") -> dict[str, Any]:
    about = f"A text that is long enough to be recognised, for {tool if version == '-' else 'all'}."
    body = {"name": tool, "description": about, "title": version, "inputSchema": {}}
    return {"marketplace": MARKET, "server_id": server, "tool": tool,
            "contract_digest": f"c1:{version}", "contract": json.dumps(body)}  # fmt: skip


def fold_runs(runs: list[list[dict[str, Any]]]) -> dict[str, tuple[str, str | None]]:
    """tool -> (first digest, last other digest) after the runs."""
    state: Any = {}
    for rows in runs:
        state = advance_state(state, rows)
    return {key[1]: (item["first_digest"], item["before_digest"]) for key, item in state.items()}


def test_the_first_and_the_last_other_contract_are_kept() -> None:
    runs = [[row("t", version)] for version in "ABBC"]
    assert fold_runs(runs) == {"t": ("c1:A", "c1:B")}
    assert fold_runs([*runs, [row("t", "A")]]) == {"t": ("c1:A", "c1:C")}
    assert fold_runs(runs[:1]) == {"t": ("c1:A", None)}


def test_a_tool_that_left_and_came_back_keeps_its_past() -> None:
    assert fold_runs([[row("t", "A")], [], [row("t", "B")]]) == {"t": ("c1:A", "c1:A")}


def test_a_renamed_tool_takes_its_past_along() -> None:
    result = fold_runs([[row("old", "A")], [row("old", "B")], [row("new", "C")]])
    assert result["new"] == ("c1:A", "c1:B")


def test_a_tool_that_was_gone_long_ago_is_no_past_of_a_new_one() -> None:
    assert fold_runs([[row("old", "A")], [], [row("new", "C")]])["new"] == ("c1:C", None)


def test_a_fold_goes_on_where_the_last_one_was_kept(warehouse: Warehouse) -> None:
    tables = warehouse.tables

    def publish(version: str) -> None:
        frame = SNAPSHOTS.frame([row("t", version)])
        tables.promote(tables.stage(SNAPSHOTS, frame, MARKET), "-", [])

    publish("A")
    first = fold_origins(tables, MARKET)
    first.keep(tables, "-")
    publish("B")
    publish("C")
    lost = fold_origins(tables, MARKET)  # killed before it was kept
    again = fold_origins(tables, MARKET)
    assert lost.state == again.state
    [item] = again.state.values()
    assert (item["first_digest"], item["before_digest"]) == ("c1:A", "c1:B")
    again.keep(tables, "-")
    assert fold_origins(tables, MARKET).state == again.state
