"""Traces as candidate pairs: requests with a call that was useful, and calls that were repaired.

A trace gives a row only where the tool's contract is known and was the same when the call was made,
the answer was useful, and the rules accept the row. The rest of a trace is not stored.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from assets.columns import read_table_spec
from assets.contracts.canonical import canonicalize_contract
from assets.contracts.quarantined_tools import CLEAR, read_clear
from assets.contracts.tool_id import BadToolId, ToolId
from assets.outcomes.outcome import TOOL_ERROR, USEFUL, classify_outcome
from assets.outcomes.trace_files import (
    CALL,
    USER,
    TraceEvent,
    TraceSession,
    find_results,
    read_traces,
)
from assets.servers.calls.result import CallResult
from assets.synthesis.export.selection import ExtraRow
from assets.synthesis.tables import (
    PAIRS,
    RECOVERY,
    SINGLE,
    TRACE,
    dump_text,
    make_call_message,
    make_golden,
    make_result_message,
    make_user_message,
    read_contract,
)
from assets.synthesis.verify.model_text import find_order
from assets.synthesis.verify.rules import verify_row
from assets.vectors.lexicon import split_identifier
from warehouse.errors import UnusableInput
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Record, Row
from warehouse.sanitize.redact import MARK, redact_prose
from warehouse.storage.digest import digest
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse

TRACES = read_table_spec(__file__, "traces")
PRIVATE_LICENCE = "LicenseRef-private"
JUDGE = "offline:rules"
_MOST_REQUEST, _MOST_OBJECTION = 4000, 4000  # characters
_DEFINED = ("name", "description", "inputSchema")


@dataclass(frozen=True)
class TracedCall:
    """A call of a turn with what came back. row: of the contract, as it is now; None where that is
    not known, and `why`."""

    arguments: JsonObject
    result: TraceEvent
    row: Row | None
    why: str

    @property
    def outcome(self) -> str:
        """As of an executed call, as far as its text shows it."""
        status = "tool_error" if self.result.failed else "ok"
        content = [{"type": "text", "text": self.result.text}]
        return classify_outcome(CallResult(status, content), self.arguments, offline=True).kind


class ContractHistory:
    """Which contract a tool of a trace has, and whether it had it then."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._tables = warehouse.tables
        self._by_tool: dict[str, list[Record]] = {}
        for row in read_clear(warehouse):
            if row["schema_problem"] is None:
                self._by_tool.setdefault(row["tool"], []).append(row)
        self._past: dict[int, set[tuple[str, str, str]]] = {}

    def find(self, session: TraceSession, call: TraceEvent) -> tuple[Row | None, str]:
        """(the contract's row, "") or (None, why)."""
        rows = self._match_name(call.name)
        if not rows:
            return None, "no contract of this tool is known"
        if len({row["contract_digest"] for row in rows}) > 1:
            return None, "servers list this tool with different contracts"
        row = rows[0]
        if not self._was_same(session, call, row):
            return None, "its contract is not the one of then"
        return row, ""

    def _match_name(self, name: str) -> list[Record]:
        try:
            tool_id = ToolId.parse(name)
        except BadToolId:
            pass
        else:
            rows = self._by_tool.get(tool_id.tool, [])
            return [row for row in rows if row["server_id"] == tool_id.server_id]
        server, _, tool = name.removeprefix("mcp__").partition("__")
        tool = tool or name
        rows = self._by_tool.get(tool, [])
        if tool != name and len({row["server_id"] for row in rows}) > 1:
            words = set(split_identifier(server)) - {"mcp", "server"}
            rows = [row for row in rows if words & set(split_identifier(row["server_id"]))]
        return rows

    def _was_same(self, session: TraceSession, call: TraceEvent, row: Row) -> bool:
        if written := session.digests.get(call.name):
            return written == row["contract_digest"]
        if defined := session.definitions.get(call.name):
            schema = defined.get("inputSchema") or defined.get("parameters")
            stated = {**defined, "inputSchema": schema, "name": row["tool"]}
            then = try_item(lambda: canonicalize_contract(stated), lambda _: {})
            now = canonicalize_contract(read_contract(row))
            return all(then.get(name) == now.get(name) for name in _DEFINED)
        if call.at is None:
            return False
        return (row["server_id"], row["tool"], row["contract_digest"]) in self._list_past(call.at)

    def _list_past(self, at: float) -> set[tuple[str, str, str]]:
        """The contracts that were clear in that minute."""
        minute = int(at // 60)
        if minute not in self._past:
            rows = self._tables.read(CLEAR, as_of=minute * 60.0)
            self._past[minute] = set(rows.select("server_id", "tool", "contract_digest").rows())
        return self._past[minute]


def find_candidates(
    session: TraceSession, contracts: ContractHistory, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Rows of TRACES without user and time; `left_out` counts why calls give none."""
    for request, calls in _list_turns(session, contracts):
        first = calls[0]
        if first.row is None:
            left_out[first.why] += 1
        elif first.outcome == USEFUL:
            yield from _make_row(request, first.row, None, first, left_out)
        elif first.outcome == TOOL_ERROR:
            digest_then = first.row["contract_digest"]
            again = next(
                (c for c in calls[1:] if c.row and c.row["contract_digest"] == digest_then), None
            )
            if again is None or again.outcome != USEFUL:
                left_out["it failed and was not repaired"] += 1
            else:
                yield from _make_row(request, first.row, first, again, left_out)
        else:
            left_out[f"its answer was {first.outcome}"] += 1


def _list_turns(
    session: TraceSession, contracts: ContractHistory
) -> Iterator[tuple[str, list[TracedCall]]]:
    """(what the user asked, the calls of its answer that came back), of turns with a call."""
    results = find_results(session.events)
    request, calls = "", list[TracedCall]()
    for at, event in enumerate((*session.events, TraceEvent(USER))):
        if event.kind == USER:
            if request and calls:
                yield request, calls
            request, calls = event.text.strip(), []
        elif event.kind == CALL and at in results:
            call = unwrap_call(event)
            row, why = contracts.find(session, call)
            calls.append(TracedCall(call.arguments, results[at], row, why))


def unwrap_call(call: TraceEvent) -> TraceEvent:
    """The tool's own call, of one through the meta-server."""
    inner, tool_id = call.arguments.get("arguments"), call.arguments.get("tool_id")
    if call.name.endswith("call_tool") and isinstance(tool_id, str):
        return replace(call, name=tool_id, arguments=inner if isinstance(inner, dict) else {})
    return call


def _make_row(
    request: str, row: Row, wrong: TracedCall | None, right: TracedCall, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    objection = wrong.result.text if wrong else ""
    arguments = [dict(call.arguments) for call in (wrong, right) if call]
    if len(request) > _MOST_REQUEST or len(objection) > _MOST_OBJECTION:
        left_out["its texts are too long"] += 1
        return
    texts = [request, objection, json.dumps(arguments, ensure_ascii=False)]
    if any(redact_prose(text) != text or MARK in text for text in texts):
        left_out["a secret stands in it"] += 1
        return
    if redact_prose(arguments) != arguments or any(find_order(text) for text in texts if text):
        left_out["it reads like an order to a model"] += 1
        return
    messages: list[JsonObject] = [make_user_message(request)]
    if wrong:
        messages.append(make_call_message(1, [(row["tool"], arguments[0])]))
        messages.append(make_result_message(1, objection))
    messages.append(make_call_message(len(arguments), [(row["tool"], arguments[-1])]))
    named = {name: row[name] for name in ("server_id", "tool", "contract_digest")}
    pair = {
        **named,
        "task": RECOVERY if wrong else SINGLE,
        "instruction": request,
        "arguments": dump_text(arguments[-1]),
        "calls": dump_text([vars(make_golden(row, arguments[-1]))]),
        "messages": json.dumps(messages, ensure_ascii=False),
        "offered": dump_text([row["contract_digest"]]),
        "basis": TRACE,
    }
    verdict = verify_row(pair, {row["contract_digest"]: read_contract(row)}).verdict
    if verdict != "accept":
        left_out[f"the rules say {verdict}"] += 1
        return
    contract = {**named, "contract": dump_text(canonicalize_contract(read_contract(row)))}
    yield {
        **{name: value for name, value in pair.items() if name not in ("offered", "basis")},
        "contracts": json.dumps([contract], ensure_ascii=False),
        "trace_id": "r1:" + digest([named, request, arguments])[:40],
    }


def import_traces(
    warehouse: Warehouse, paths: Sequence[Path], user: str | None, run_id: str
) -> dict[str, Any]:
    """Adds the candidates of trace files to TRACES. user: whose they are, but for files of `serve`,
    which name a token; without one a file of another owner is refused. Raises UnusableInput, and
    then nothing is stored."""
    contracts, left_out = ContractHistory(warehouse), Counter[str]()
    rows = {row["trace_id"]: row for row in warehouse.tables.read(TRACES).to_dicts()}
    owners = {row["session"]: row["user"] for row in rows.values()}
    counts = Counter[str]()
    for path in paths:
        if user is None and path.exists() and path.stat().st_uid != os.getuid():
            raise UnusableInput(
                f"{path.name}: the file is another user's; say whose traces these are with --user"
            )
        trace = read_traces(path)
        counts["cut_lines"] += trace.cut
        for session in trace.sessions:
            who = name_user(session.user or user)
            name = "s1:" + digest([session.format, session.id])[:40]
            if owners.setdefault(name, who) != who:
                raise UnusableInput(
                    f"{path.name}: its session was imported as another user's; import it as theirs"
                )
            counts["sessions"] += 1
            shared = {"user": who, "session": name, "format": session.format}
            for row in find_candidates(session, contracts, left_out):
                made = shared | row | {"imported_at": time.time()}
                rows.setdefault(row["trace_id"], made)
                counts[row["task"]] += 1
    _publish(warehouse.tables, rows.values(), run_id)
    return {**counts, "left_out": dict(left_out.most_common()), "stored": len(rows)}


def name_user(user: str | None) -> str:
    """A user as the table names them, by default who runs this: `u1:` and 40 hex digits."""
    return "u1:" + digest(["trace user", user or str(os.getuid())])[:40]


def forget_user(warehouse: Warehouse, user: str | None, run_id: str) -> int:
    """Takes the rows of a user out of TRACES; returns how many. `gc` deletes older versions."""
    rows = warehouse.tables.read(TRACES).to_dicts()
    others = [row for row in rows if row["user"] != name_user(user)]
    if len(others) < len(rows):
        _publish(warehouse.tables, others, run_id)
    return len(rows) - len(others)


def _publish(tables: Tables, rows: Iterable[Record], run_id: str) -> None:
    tables.promote(tables.stage(TRACES, TRACES.frame(rows)), run_id, [])


def list_traced(tables: Tables, as_of: float | None = None) -> list[ExtraRow]:
    """The rows of TRACES in the columns of a pair, with their contracts. They are learnt from and
    never tested on, so that no user is on both sides of a split."""
    rows = tables.read(TRACES, as_of=as_of).sort("trace_id")
    return [
        ExtraRow(_make_pair(row), JUDGE, json.loads(row["contracts"]))
        for row in rows.iter_rows(named=True)
    ]


def _make_pair(row: Row) -> dict[str, Any]:
    copied = ("server_id", "tool", "contract_digest", "task", "instruction", "arguments", "calls")
    offered = dump_text([row["contract_digest"]])
    return {
        **dict.fromkeys(PAIRS.columns),
        **{name: row[name] for name in (*copied, "messages")},
        "pair_id": row["trace_id"],
        "basis": TRACE,
        "contracts": offered,
        "offered": offered,
        "simulated": False,
        "provider": row["format"],
        "model": TRACE,
        "steps": "[]",
        "license": PRIVATE_LICENCE,
        "status": "ok",
    }


def count_users(tables: Tables) -> list[dict[str, Any]]:
    """Rows by user, format and task."""
    frame = tables.read(TRACES).group_by("user", "format", "task").agg(pl.len().alias("rows"))
    return frame.sort("user", "format", "task").to_dicts()
