"""The quarantine: which contracts are held, by which finding or person, and which are clear.

A decision is about one contract, by its digest: a tool that changes is judged again. A contract
without a published scan (its run failed half-way) is scanned here, so nothing passes because a
table is behind. A hold by a person counts from the moment of the decision; a release takes effect
with the next publication.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.columns import read_table_spec
from assets.contracts.canonical import DIGEST_PREFIX
from assets.contracts.findings import FINDINGS, SCANS, Contract
from assets.contracts.scan import HIGH, scan_each
from assets.contracts.scan.rule_table import RULES
from assets.contracts.snapshot import SNAPSHOTS
from warehouse.errors import UnusableInput
from warehouse.json_types import JsonObject, Record, Row
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.storage.digest import sha256
from warehouse.storage.files import DecisionFile
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

RELEASED_VERDICT, HELD_VERDICT = "released", "held"
ANY_RULE = "*"  # holds the contract whatever was found; releasing it lifts that hold and no other


class DecisionError(ValueError):
    """A decision that cannot be made or read; the message says what is missing."""


@dataclass(frozen=True)
class Decision:
    """One judgement by a person. verdict: "released" or "held"; at: UTC, ISO 8601."""

    contract_digest: str
    rule: str
    verdict: str
    by: str
    at: str
    why: str


class DecisionIndex:
    """What the last decision on each rule of each contract says."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._last: dict[str, dict[str, str]] = defaultdict(dict)
        for decision in decisions:
            self._last[decision.contract_digest][decision.rule] = decision.verdict

    def is_clear(self, contract_digest: str, high: Iterable[str]) -> bool:
        """Whether a contract may enter prompts, embeddings and training rows: no person holds it,
        and each rule with a high finding about its tool was released for this very contract."""
        last = self._last.get(contract_digest, {})
        return HELD_VERDICT not in last.values() and all(
            last.get(rule) == RELEASED_VERDICT for rule in high
        )

    def find_held_digests(self) -> set[str]:
        """Digests of the contracts that a person holds: by the last decision on some rule."""
        return {digest for digest, last in self._last.items() if HELD_VERDICT in last.values()}


def record_decision(home: Path, decision: Decision) -> None:
    """Appends one decision; nothing is ever rewritten. Raises DecisionError on a bad one."""
    _FILE.record(home, decision)


def read_decisions(home: Path) -> list[Decision]:
    """All decisions, oldest first; [] before the first.

    Raises DecisionError on a line that is none: a record that was tampered with clears nothing.
    """
    return _FILE.read(home)


def _find_problem(decision: Decision) -> str:
    if not decision.contract_digest.startswith(DIGEST_PREFIX):
        return f"contract_digest is {decision.contract_digest[:40]!r}, expected {DIGEST_PREFIX}…"
    if decision.verdict not in (RELEASED_VERDICT, HELD_VERDICT):
        expected = f"{RELEASED_VERDICT!r} or {HELD_VERDICT!r}"
        return f"verdict is {decision.verdict[:40]!r}, expected {expected}"
    return ""


_FILE = DecisionFile(
    Path("quarantine") / "decisions.jsonl",
    Decision,
    _find_problem,
    DecisionError,
    "look at it; `toolmill doctor --fix` takes out what is no JSON and keeps the old file",
)


def split_rows(
    rows: Iterable[Row], findings: Iterable[Row], decided: Iterable[Decision]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(clear, held) of snapshot rows, in their order. findings: rows of FINDINGS."""
    high: dict[Contract, list[str]] = defaultdict(list)
    for finding in findings:
        if finding["severity"] == HIGH:
            high[key_contract(finding)].append(finding["rule"])
    decisions, clear, held_rows = DecisionIndex(decided), [], []
    for row in rows:
        ok = decisions.is_clear(row["contract_digest"], high.get(key_contract(row), ()))
        (clear if ok else held_rows).append(dict(row))
    return clear, held_rows


def key_contract(row: Row) -> Contract:
    return row["server_id"], row["tool"], row["contract_digest"]


class ContractFirewall:
    """What is known now about every contract."""

    def __init__(
        self, findings: Iterable[Row], scanned: Iterable[Row], decided: Iterable[Decision]
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
        for server, server_rows in due.items():
            each = scan_each([json.loads(row["contract"]) for row in server_rows])
            for row, findings in zip(server_rows, each, strict=True):
                digest = row["contract_digest"]
                owner = {"server_id": server, "tool": row["tool"], "contract_digest": digest}
                yield from ({**finding.as_row(), **owner} for finding in findings)


def open_firewall(warehouse: Warehouse) -> ContractFirewall:
    """The firewall over all marketplaces. Raises DecisionError for an untrusted record."""
    tables = warehouse.tables
    return ContractFirewall(
        tables.read(FINDINGS).to_dicts(),
        tables.read(SCANS).select("server_id", "tool", "contract_digest").to_dicts(),
        read_decisions(warehouse.home),
    )


CLEAR = read_table_spec(__file__, "clear_contracts")
HELD = read_table_spec(__file__, "held_contracts")


def select_columns(spec: TableSpec, snapshots: Iterable[JsonObject]) -> list[Record]:
    """Rows of CLEAR or HELD, of snapshot rows."""
    return [{name: row[name] for name in spec.columns} for row in snapshots]


def read_contracts(
    warehouse: Warehouse, marketplace: str | None = None
) -> tuple[list[Record], list[Record]]:
    """(clear, held): rows of CLEAR and of HELD, of one marketplace or of all.

    Of all marketplaces, what any of them holds is held. Raises DecisionError when the record of
    decisions cannot be trusted.
    """
    tables = warehouse.tables
    by_person = DecisionIndex(read_decisions(warehouse.home)).find_held_digests()
    held_rows = tables.read(HELD, marketplace).to_dicts()
    elsewhere = set() if marketplace else set(map(key_contract, held_rows))
    clear = []
    for row in tables.read(CLEAR, marketplace).to_dicts():
        if row["contract_digest"] in by_person or key_contract(row) in elsewhere:
            held_rows.append({name: row[name] for name in HELD.columns})
        else:
            clear.append(row)
    return clear, held_rows


def read_clear(warehouse: Warehouse, marketplace: str | None = None) -> list[Record]:
    """The contracts that may enter prompts, embeddings, training rows and the served index."""
    return read_contracts(warehouse, marketplace)[0]


def find_unresolvable(rows: Iterable[JsonObject]) -> list[str]:
    """Digests that are not those of the contract beside them."""
    pairs = ((row["contract_digest"], row["contract"].encode()) for row in rows)
    return [digest for digest, contract in pairs if digest != DIGEST_PREFIX + sha256(contract)]


class UnknownContract(UnusableInput):
    """A contract that no current snapshot holds."""


class BadDecision(UnusableInput):
    """A decision that cannot be made."""


def find_held_rows(warehouse: Warehouse) -> list[dict[str, Any]]:
    """The snapshot rows that findings and decisions hold at this moment."""
    rows = warehouse.tables.read(SNAPSHOTS).unique(["server_id", "tool", "contract_digest"])
    return open_firewall(warehouse).split(rows.to_dicts())[1]


def list_held_tools(warehouse: Warehouse) -> list[dict[str, Any]]:
    """One row for each reason that holds a tool: {server_id, tool, contract_digest, rule, severity,
    field, excerpt, why, since, by}. All texts are escaped; `by` is the person who held it."""
    quarantined = set(map(key_contract, find_held_rows(warehouse)))
    last = {(past.contract_digest, past.rule): past for past in read_decisions(warehouse.home)}
    out: dict[tuple[str, ...], dict[str, Any]] = {}
    for finding in warehouse.tables.read(FINDINGS).to_dicts():
        key, decision = (
            key_contract(finding),
            last.get((finding["contract_digest"], finding["rule"])),
        )
        released = decision is not None and decision.verdict == RELEASED_VERDICT
        if finding["severity"] == HIGH and key in quarantined and not released:
            out.setdefault((*key, finding["rule"]), _build_reason(key, finding))
    for key in quarantined:
        for (digest, rule), past in last.items():
            if digest == key[2] and past.verdict == HELD_VERDICT:
                by_person = {"rule": rule, "why": past.why, "first_seen": past.at}
                row = out.setdefault((*key, rule), _build_reason(key, by_person))
                row["by"] = escape_text(past.by)
        if not any(reason[:3] == key for reason in out):
            unread = {"rule": "not_scanned_yet", "why": "the findings of its run are missing"}
            out[*key, "not_scanned_yet"] = _build_reason(key, unread)
    return [out[reason] for reason in sorted(out)]


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
            f"{digest[:80]}: no current snapshot holds this contract; `toolmill quarantine`"
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
        "since": about.get("first_seen") or "",
        "by": None,
    }
