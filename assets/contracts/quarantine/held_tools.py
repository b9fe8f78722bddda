"""Quarantine: which tools are held and why, and a person's decision about one of them."""

import json
import time
from typing import Any

from assets.contracts.history.snapshot import SNAPSHOTS
from assets.contracts.quarantine.decisions import (
    ANY_RULE,
    HELD,
    RELEASED,
    Decision,
    read_decisions,
    record_decision,
)
from assets.contracts.quarantine.findings import FINDINGS
from assets.contracts.quarantine.firewall import key_contract, open_firewall
from assets.contracts.scan.finding import HIGH, RULES
from warehouse.errors import UnusableInput
from warehouse.json_types import JsonObject
from warehouse.sanitize.escape import escape_text
from warehouse.store import Warehouse


class UnknownContract(UnusableInput):
    """A contract that no current snapshot holds."""


class BadDecision(UnusableInput):
    """A decision that cannot be made: the message names the part and the fix."""


def find_held_rows(warehouse: Warehouse) -> list[dict[str, Any]]:
    """The snapshot rows that findings and decisions hold at this moment."""
    rows = warehouse.tables.read(SNAPSHOTS).unique(["server_id", "tool", "contract_digest"])
    return open_firewall(warehouse).split(rows.to_dicts())[1]


def list_held_tools(warehouse: Warehouse) -> list[dict[str, Any]]:
    """One row for each reason that holds a tool: {server_id, tool, contract_digest, rule, severity,
    field, excerpt, why, since, by}. All texts are escaped; `by` is the person who held it."""
    held = {key_contract(row): row for row in find_held_rows(warehouse)}
    last = {(one.contract_digest, one.rule): one for one in read_decisions(warehouse.home)}
    out = {}
    for found in warehouse.tables.read(FINDINGS).to_dicts():
        key = key_contract(found)
        decision = last.get((key[2], found["rule"]))
        if (
            found["severity"] == HIGH
            and key in held
            and not (decision and decision.verdict == RELEASED)
        ):
            out.setdefault((*key, found["rule"]), _build_reason(key, found))
    for key in held:
        for decision in (one for (name, _), one in last.items() if name == key[2]):
            if decision.verdict == HELD:
                by_person = {
                    "rule": decision.rule,
                    "why": decision.why,
                    "by": decision.by,
                    "since": decision.at,
                }
                row = out.setdefault((*key, decision.rule), _build_reason(key, by_person))
                row["by"] = escape_text(decision.by)
        if not any(name[:3] == key for name in out):
            scanned_here = {"rule": "not_scanned_yet", "why": "the findings of its run are missing"}
            out[(*key, "not_scanned_yet")] = _build_reason(key, scanned_here)
    return [out[name] for name in sorted(out)]


def decide_on_tool(
    warehouse: Warehouse, digest: str, *, rule: str, verdict: str, by: str, why: str
) -> dict[str, Any]:
    """Keeps one decision and returns it with the tools it is about.

    Raises BadDecision, UnknownContract, or DecisionError where the record itself is broken.
    """
    if rule != ANY_RULE and rule not in RULES:
        raise BadDecision(f"no rule {rule[:60]!r}; {ANY_RULE!r} means the contract as a whole")
    rows = warehouse.tables.read(SNAPSHOTS).unique(["server_id", "tool"]).to_dicts()
    about = [row for row in rows if row["contract_digest"] == digest]
    if not about:
        raise UnknownContract(
            f"{digest[:80]}: no current snapshot holds this contract; `toolmill quarantine list`"
            " and `toolmill contract history SERVER_ID` print digests"
        )
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record_decision(warehouse.home, Decision(digest, rule, verdict, by, at, why))
    tools = [{"server_id": row["server_id"], "tool": escape_text(row["tool"])} for row in about]
    return {"contract_digest": digest, "rule": rule, "verdict": verdict, "by": by, "at": at,
            "why": why, "tools": sorted(tools, key=lambda tool: json.dumps(tool))}  # fmt: skip


def _build_reason(key: tuple[str, str, str], about: JsonObject) -> dict[str, Any]:
    return {
        "server_id": key[0],
        "tool": escape_text(key[1]),
        "contract_digest": key[2],
        "rule": about["rule"],
        "severity": about.get("severity", HIGH),
        "field": about.get("field", ""),
        "excerpt": about.get("excerpt", ""),
        "why": escape_text(about["why"]),
        "since": about.get("first_seen") or about.get("since") or "",
        "by": None,
    }
