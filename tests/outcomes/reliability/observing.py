"""Observations and logs that the tests of reliability share."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import EXECUTION
from assets.outcomes.reliability.observations import OBSERVED
from assets.outcomes.table import EXECUTIONS
from assets.servers.calls.log import CallLog
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
TOOL, DIGEST = "npm:files::read_file", "c1:" + "a" * 64


@dataclass(frozen=True)
class Observation:
    """One row of OBSERVED."""

    at: float
    tool_id: str
    contract_digest: str
    success: bool
    weight: float = 1.0
    seconds: float | None = None
    query: str = ""
    query_key: str = ""
    source: str = EXECUTION
    client: str | None = None
    kind: str | None = None
    rank: int | None = None
    call_id: str = ""
    search_id: str = ""
    claimed: bool = False


def make_frame(observations: Iterable[Observation]) -> pl.DataFrame:
    return pl.DataFrame([asdict(observation) for observation in observations], schema=OBSERVED)


def list_observations(frame: pl.DataFrame) -> list[Observation]:
    """The rows, oldest first."""
    ordered = frame.select(list(OBSERVED)).sort("at", "tool_id", "call_id")
    return [Observation(**row) for row in ordered.iter_rows(named=True)]


def observe(success: bool = True, **facts: Any) -> Observation:
    by_name: dict[str, Any] = {"at": NOW - 3600, "tool_id": TOOL, "contract_digest": DIGEST}
    return Observation(**{**by_name, "success": success, **facts})


def write_log(place: Path, lines: list[dict[str, Any] | str]) -> None:
    """A log of calls of one day; a text stands as it is."""
    folder = place / "outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "2026-03-01.jsonl").write_text("".join(f"{text}\n" for text in texts))


def call(call_id: str, status: str = "ok", **facts: Any) -> dict[str, Any]:
    """The line of a call."""
    names = {"token": "ci", "tool_id": TOOL, "contract_digest": DIGEST, "call_id": call_id}
    return {"at": NOW - 60, "id": f"i{call_id}", "status": status, **names, **facts}


def report(call_id: str, spoken: str, **facts: Any) -> dict[str, Any]:
    """The line of a report."""
    return call(call_id, "reported", reported=spoken, **{"at": NOW - 30, **facts})


CONTRACT = json.dumps({"name": "read_file", "inputSchema": {"properties": {"path": {}}}})


def publish(warehouse: Warehouse, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
    """Makes rows current; columns that they lack are null."""
    whole = [{**dict.fromkeys(spec.columns), **row} for row in rows]
    warehouse.tables.promote(warehouse.tables.stage(spec, spec.frame(whole)), "test", [])


def fill_home(warehouse: Warehouse) -> None:
    """One server with a tool that changed, twice executed under its older contract, and a tool that
    was called through the server's router just now."""
    names = {"marketplace": "registry", "server_id": "npm:files", "contract": CONTRACT}
    old, new, other = (f"c1:{letter * 64}" for letter in "abc")
    listing = {"read_file": new, "write_file": other}
    day = "2026-02-01"
    rows = [{**names, "tool": tool, "contract_digest": of} for tool, of in listing.items()]
    publish(warehouse, CLEAR, [{**row, "first_seen": day} for row in rows])
    change = {"server_id": "npm:files", "tool": "read_file", "from_digest": old, "to_digest": new}
    change |= {"run_date": day, "cls": "compatible", "fields": ""}
    publish(warehouse, CHANGES, [change])
    ran = {**names, "tool": "read_file", "contract_digest": old, "executed_at": time.time()}
    ran.pop("contract")
    ends = [("useful", None), ("useful", None), ("tool_error", "tool"), ("tool_error", "caller")]
    rows = [
        {**ran, "execution_id": f"e{at}", "outcome": outcome, "blame": blame, "status": "ok"}
        for at, (outcome, blame) in enumerate(ends)
    ]
    publish(warehouse, EXECUTIONS, rows)
    called = {"token": "ci", "tool_id": "npm:files::write_file", "contract_digest": other}
    log = CallLog(warehouse.home)
    for at in range(4):
        log.record({**called, "status": "ok", "call_id": f"k{at}", "seconds": 0.25})
    log.record({**called, "status": "reported", "call_id": "k0", "reported": "failed"})
