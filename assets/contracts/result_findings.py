"""What results of calls showed, kept until the next run makes findings of it.

    <home>/quarantine/results.jsonl

One line for each rule, contract and part of a result, whoever called and however often. A line
holds the words that a rule matched, never what stands around them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.contracts.scan.rule_table import RULES, SEVERITIES, ScanFinding
from warehouse.json_types import JsonObject
from warehouse.sanitize.redact import redact
from warehouse.storage.files import append_line

Contract = tuple[str, str, str]  # server, tool, contract digest

_FILE = Path("quarantine") / "results.jsonl"


class ResultFindings:
    """The record under one home. Several processes may write at once: a line is one write."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: set[tuple[Any, ...]] | None = None

    def add(self, contract: Contract, findings: Iterable[ScanFinding]) -> None:
        """Keeps what is new of a result's findings. Raises OSError (disk full)."""
        if self._known is None:
            recorded = read_result_findings(self._home)
            self._known = {
                _identify(of, finding)
                for of, contract_findings in recorded.items()
                for finding in contract_findings
            }
        for finding in map(_shorten, findings):
            if (key := _identify(contract, finding)) not in self._known:
                server_id, tool, digest = contract
                identity = {"server_id": server_id, "name": tool, "contract_digest": digest}
                append_line(self._home / _FILE, json.dumps({**identity, **finding.as_row()}))
                self._known.add(key)


def read_result_findings(home: Path) -> dict[Contract, list[ScanFinding]]:
    """All that was recorded, by contract. A line that a kill cut short is passed over: a call that
    shows the same again writes it again."""
    path = home / _FILE
    out: dict[Contract, list[ScanFinding]] = defaultdict(list)
    if path.exists():
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if (line := _parse_line(text)) is not None:
                out[line[0]].append(line[1])
    return out


def _shorten(finding: ScanFinding) -> ScanFinding:
    """A finding without where exactly it stood: the next result has it elsewhere."""
    part = finding.field.split("/")[1] if "/" in finding.field else finding.field
    return replace(finding, field=f"/result/{part}", span=(0, 0), excerpt=redact(finding.excerpt))


def _identify(contract: Contract, finding: ScanFinding) -> tuple[Any, ...]:
    return (*contract, finding.rule, finding.severity, finding.field)


def _parse_line(text: str) -> tuple[Contract, ScanFinding] | None:
    try:
        line: JsonObject = json.loads(text)
        contract = tuple(str(line[name]) for name in ("server_id", "name", "contract_digest"))
        names = ScanFinding.__dataclass_fields__
        finding = ScanFinding(**{name: line[name] for name in names if name != "span"}, span=(0, 0))
    except (ValueError, KeyError, TypeError):
        return None
    whole = finding.rule in RULES and finding.severity in SEVERITIES
    return ((contract[0], contract[1], contract[2]), finding) if whole else None
