"""Traces: calls that clients of the proxy made and send the results of, where an operator opts in.

A call is kept only where its contract is known, under the id of the tool, so that a take-down of
the tool reaches the line. What follows is that of the meta-server's traces.
"""

import json
import logging
import threading
import time
from dataclasses import replace
from typing import Any

from assets.outcomes.trace_files import (
    CALL,
    USER,
    TraceEvent,
    TraceSession,
    find_results,
    read_request,
)
from assets.outcomes.trace_pairs import ContractHistory, unwrap_call
from assets.servers.calls.log import LONGEST_TRACE, CallLog
from assets.synthesis.verify.model_text import find_order
from warehouse.bounded_dict import BoundedDict
from warehouse.sanitize.redact import redact
from warehouse.storage.digest import sha256
from warehouse.store import Warehouse

TOKEN = "proxy"  # the name that lines are kept under
_FRESH_S = 600.0  # for which contracts that were read are taken for those of now
logger = logging.getLogger(__name__)


class TraceKeeper:
    """Keeps the calls of requests in a log. Called in threads."""

    def __init__(self, warehouse: Warehouse, log: CallLog) -> None:
        self._warehouse, self._log, self._lock = warehouse, log, threading.Lock()
        self._kept = BoundedDict()  # a conversation's calls come again with each of its requests
        self._contracts, self._until = ContractHistory(warehouse), time.monotonic() + _FRESH_S

    def keep_request(self, body: bytes) -> None:
        """Keeps what a request says of its calls. Nothing that goes wrong here costs an answer."""
        with self._lock:
            try:
                self._keep_session(read_request(json.loads(body)))
            except Exception as error:  # a full disk too
                logger.error("a trace could not be kept: %s", type(error).__name__)

    def _keep_session(self, session: TraceSession) -> None:
        results, words = find_results(session.events), ""
        for at, event in enumerate(session.events):
            if event.kind == USER:
                words = event.text
            elif event.kind == CALL and at in results and len(results[at].text) <= LONGEST_TRACE:
                call = replace(unwrap_call(event), at=time.time())
                self._keep_call(session, call, results[at], words)

    def _keep_call(
        self, session: TraceSession, call: TraceEvent, result: TraceEvent, words: str
    ) -> None:
        content: list[Any] = [call.call, call.name, call.arguments, result.text, words]
        mark = sha256(json.dumps(content).encode())
        if mark in self._kept:
            return
        self._kept[mark] = True
        if time.monotonic() > self._until:
            self._contracts = ContractHistory(self._warehouse)
            self._until = time.monotonic() + _FRESH_S
        row, _ = self._contracts.find(session, call)
        if row is None or find_order(redact(result.text)):
            return
        facts = {
            "tool_id": f"{row['server_id']}::{row['tool']}",
            "contract_digest": row["contract_digest"],
            "arguments": call.arguments,
            "status": "tool_error" if result.failed else "ok",
        }
        self._log.keep_trace(TOKEN, words, facts, result.text)
