"""Report: what a run's executions come to, for the asset's page."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.table import PROOFS, has_run
from assets.servers.probe.failure_kinds import BLAMES
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.statistics import wilson_interval

_SHOWN = 24


def report_executions(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures and tables of rows of EXECUTIONS."""
    ran = [row for row in rows if has_run(row)]
    useful = [row for row in ran if row["outcome"] == USEFUL]
    low, high = wilson_interval(len(useful), len(ran))
    pairs = {pair for row in rows for pair in json.loads(row["pair_ids"])}
    return {
        "executed": len(ran),
        "servers": len({row["server_id"] for row in ran}),
        "pairs": len(pairs),
        "useful_of_executed": f"{len(useful)} of {len(ran)} [{low:.2f}, {high:.2f}]",
        "against_the_tool": sum(row["blame"] == "tool" for row in rows),
        "breaks_read_only_hint": sum(bool(row["breaks_hint"]) for row in rows),
        "differs_when_repeated": sum(bool(row["differs"]) for row in rows),
        **{item: sum(row["proof"] == item for row in rows) for item in PROOFS},
        "outcomes": tabulate_outcomes(rows),
        "shares": _tabulate_shares(ran),
        "not_useful": _tabulate_failures(rows),
        "twins": _tabulate_twins(rows),
    }


def tabulate_outcomes(rows: Sequence[Row]) -> Markdown:
    """Outcomes by whom they are laid to, as a table."""
    counts = Counter((row["outcome"] or "not made", row["blame"] or "") for row in rows)
    blames = [item for item in ("", *BLAMES) if any(blame == item for _, blame in counts)]
    lines = [
        [kind, *(str(counts[kind, blame] or "") for blame in blames)]
        for kind in (*OUTCOMES, "not made")
        if any(counts[kind, blame] for blame in blames)
    ]
    return make_markdown_table(["outcome", *(blame or "nobody" for blame in blames)], lines)


def _tabulate_shares(ran: Sequence[Row]) -> Markdown:
    """The useful share of each server's calls, or of each tool's of the only one, lowest first."""
    column = "server_id" if len({row["server_id"] for row in ran}) > 1 else "tool"
    calls = Counter(str(row[column]) for row in ran)
    useful = Counter(str(row[column]) for row in ran if row["outcome"] == USEFUL)
    lines = []
    for name, n in sorted(calls.items(), key=lambda item: (useful[item[0]] / item[1], item[0])):
        low, high = wilson_interval(useful[name], n)
        lines.append([name, str(n), f"{useful[name] / n:.2f} [{low:.2f}, {high:.2f}]"])
    return make_markdown_table(["server or tool", "calls", "useful [95%]"], lines[:_SHOWN])


def _tabulate_failures(rows: Sequence[Row]) -> Markdown:
    failed = [row for row in rows if row["outcome"] != USEFUL]
    lines = [
        [
            str(ToolId(row["server_id"], row["tool"])),
            str(row["outcome"]),
            str(row["blame"] or ""),
            str(row["evidence"] or row["hint"] or "")[:160],
        ]
        for row in failed[:_SHOWN]
    ]
    return make_markdown_table(["tool", "outcome", "blame", "evidence"], lines)


def _tabulate_twins(rows: Sequence[Row]) -> Markdown:
    """The look-alikes that were asked what was written for another tool, and how that went."""
    tried = Counter(
        (str(row["twin_of"]), str(ToolId(row["server_id"], row["tool"])), str(row["outcome"]))
        for row in rows
        if row["twin_of"]
    )
    lines = [[*labels, str(n)] for labels, n in sorted(tried.items())[:_SHOWN]]
    return make_markdown_table(["written for", "asked of", "outcome", "calls"], lines)
