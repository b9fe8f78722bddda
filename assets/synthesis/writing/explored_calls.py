"""Calls that worked when a server was explored: what requests about its tools are written from."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assets.synthesis.tables import EXPLORATIONS, LOOKALIKE, RECOVERY, SINGLE
from assets.synthesis.writing.units import WritingUnit
from warehouse.json_types import Json
from warehouse.storage.tables import Tables

_MOST = 6  # calls of a tool that its requests are written from
_TASKS = (SINGLE, LOOKALIKE, RECOVERY)
_USEFUL = "useful"  # outcome of a call that was answered with something

ExploredCalls = Mapping[tuple[str, str, str], Sequence[dict[str, Json]]]


def read_explored(tables: Tables, name: str) -> ExploredCalls:
    """(server, tool, contract digest) -> arguments of useful calls, those with the fewest invented
    values first."""
    ranked: dict[tuple[str, str, str], list[tuple[int, str]]] = defaultdict(list)
    for row in tables.read(EXPLORATIONS, name).to_dicts():
        if row["outcome"] == _USEFUL:
            invented = list(json.loads(row["sources"]).values()).count("invented")
            key = (row["server_id"], row["tool"], row["contract_digest"])
            ranked[key].append((invented, row["arguments"]))
    return {
        key: [json.loads(arguments) for _, arguments in sorted(calls)[:_MOST]]
        for key, calls in ranked.items()
    }


def add_explored(units: Sequence[WritingUnit], explored: ExploredCalls) -> list[WritingUnit]:
    """The units; one for one call of a tool that was explored knows the calls that worked."""

    def add(unit: WritingUnit) -> WritingUnit:
        own = unit.own
        calls = explored.get((own["server_id"], own["tool"], own["contract_digest"]), ())
        if unit.task not in _TASKS or unit.problem or not calls:
            return unit
        return replace(unit, explored=tuple(calls))

    return [add(unit) for unit in units]
