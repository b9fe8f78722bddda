"""The table of executions: one row for each call that really ran, with its outcome."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assets.columns import read_table_spec
from assets.outcomes.outcome import REFUSED, USEFUL
from warehouse.json_types import Row
from warehouse.storage.tables import Tables

EXECUTIONS = read_table_spec(__file__, "executions")
PROVED, REFUTED, UNPROVED = "proved", "refuted", "unproved"
PROOFS = (PROVED, REFUTED, UNPROVED)
# Which pairs a training set takes: all; all but those whose executed call had an invalid response;
# only those that their executed call proves.
ANY, VALID = "any", "valid"
RULES = (ANY, VALID, PROVED)
# What goes wrong in passing, before a call is sent: it is made again in the next run.
PASSING = (
    *("fetch_failed", "busy", "closed", "internal"),
    *("timeout_start", "timeout_list", "remote_down"),
)
# Of whom a bad response is the pair's or the tool's: others' faults say nothing about a pair.
_COUNTED = ("caller", "tool", "server")


@dataclass(frozen=True)
class PairEvidence:
    """useful: each call answered; invalid: one really failed by caller, tool or server."""

    useful: bool
    invalid: bool
    proof: str | None


def has_run(row: Mapping[str, Any]) -> bool:
    """Whether a call was sent."""
    if row["error_kind"] in PASSING:
        return False
    return row["outcome"] is not None and (row["outcome"] != REFUSED or row["status"] == "ok")


def read_tried(tables: Tables, as_of: float | None = None) -> dict[str, PairEvidence]:
    """Pair -> what executions of its calls say, now or as of a time (epoch seconds)."""
    return group_by_pair(tables.read(EXECUTIONS, as_of=as_of).to_dicts())


def may_keep(tried: PairEvidence | None, rule: str) -> bool:
    """Whether a pair is kept under one of RULES."""
    if rule == PROVED:
        return tried is not None and tried.proof == PROVED
    return rule == ANY or tried is None or not tried.invalid


def group_by_pair(rows: Iterable[Row]) -> dict[str, PairEvidence]:
    """Pair -> what executions of its own calls say of it; none whose calls were not sent."""
    rows_by_pair: dict[str, list[Row]] = {}
    for row in rows:
        if row["twin_of"] is None and has_run(row):
            for pair in json.loads(row["pair_ids"]):
                rows_by_pair.setdefault(pair, []).append(row)
    return {pair: _summarise_pair(pair_rows) for pair, pair_rows in rows_by_pair.items()}


def _summarise_pair(rows: list[Row]) -> PairEvidence:
    proofs = {row["proof"] for row in rows}
    proof = next((item for item in (REFUTED, UNPROVED, PROVED) if item in proofs), None)
    if proof == PROVED and None in proofs:
        proof = UNPROVED  # a call of it was not tried
    useful = all(row["outcome"] == USEFUL for row in rows)
    # By the real response no model should learn such a call (MCP-Flow's filter).
    failed = (row for row in rows if row["outcome"] not in (USEFUL, None))
    return PairEvidence(useful, any(row["blame"] in _COUNTED for row in failed), proof)
