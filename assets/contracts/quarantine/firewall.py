"""Clear: which contracts may enter prompts, embeddings, training rows and the served index.

A contract that has no published scan (its run failed half-way) is scanned here: nothing passes
because a table is behind.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from assets.contracts.quarantine.decisions import Decided, Decision, read_decisions
from assets.contracts.quarantine.findings import FINDINGS, SCANS, Contract
from assets.contracts.scan import HIGH, scan_each
from warehouse.json_types import Row
from warehouse.store import Warehouse


def split_rows(
    rows: Iterable[Row], findings: Iterable[Row], decided: Iterable[Decision]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(clear, held) of snapshot rows, in their order. findings: rows of FINDINGS."""
    high: dict[Contract, list[str]] = defaultdict(list)
    for finding in findings:
        if finding["severity"] == HIGH:
            high[key_contract(finding)].append(finding["rule"])
    decisions, clear, held = Decided(decided), [], []
    for row in rows:
        ok = decisions.is_clear(row["contract_digest"], high.get(key_contract(row), ()))
        (clear if ok else held).append(dict(row))
    return clear, held


def key_contract(row: Row) -> Contract:
    return row["server_id"], row["tool"], row["contract_digest"]


class Firewall:
    """What is known now about every contract."""

    def __init__(
        self,
        findings: Iterable[Row],
        scanned: Iterable[Row],
        decided: Iterable[Decision],
    ) -> None:
        self._findings = list(findings)
        self._scanned = {key_contract(row) for row in scanned}
        self._decided = list(decided)

    def split(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(clear, held) of snapshot rows."""
        return split_rows(rows, [*self._findings, *self._scan_unscanned(rows)], self._decided)

    def _scan_unscanned(self, rows: Sequence[Row]) -> Iterable[dict[str, Any]]:
        """High findings of contracts that no published scan has read."""
        due: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row.get("contract") and key_contract(row) not in self._scanned:
                due[row["server_id"]].append(row)
        for server, listed in due.items():
            each = scan_each([json.loads(row["contract"]) for row in listed])
            for row, found in zip(listed, each, strict=True):
                digest = row["contract_digest"]
                owner = {"server_id": server, "tool": row["tool"], "contract_digest": digest}
                yield from ({**one.as_row(), **owner} for one in found)


def open_firewall(warehouse: Warehouse) -> Firewall:
    """The firewall over all marketplaces: what one of them found, none makes anything of.

    Raises DecisionError when the record of decisions cannot be trusted.
    """
    tables = warehouse.tables
    return Firewall(
        tables.read(FINDINGS).to_dicts(),
        tables.read(SCANS).select("server_id", "tool", "contract_digest").to_dicts(),
        read_decisions(warehouse.home),
    )
