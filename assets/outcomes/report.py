"""Report: what a run's executions come to, for the asset's page."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.table import (
    PROOFS,
    PROVED,
    REFUTED,
    PairEvidence,
    group_by_pair,
    has_run,
    is_sample,
)
from assets.servers.probe.failure_kinds import BLAMES
from warehouse.json_types import Row
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
)
from warehouse.statistics import wilson_interval

_SHOWN = 24


def report_executions(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures and tables of rows of EXECUTIONS: of calls of accepted pairs and their look-alikes;
    of the sample of refused pairs only how many."""
    sample = sum(map(is_sample, rows))
    rows = [row for row in rows if not is_sample(row)]
    ran = [row for row in rows if has_run(row)]
    useful = [row for row in ran if row["outcome"] == USEFUL]
    low, high = wilson_interval(len(useful), len(ran))
    pairs = {pair for row in rows for pair in json.loads(row["pair_ids"])}
    return {
        "executed": len(ran),
        "servers": len({row["server_id"] for row in ran}),
        "pairs": len(pairs),
        "of_refused_pairs": sample,
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
    """The useful share of the calls of each server, or of each tool of the only one, the lowest
    first."""
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


ACCEPT, REJECT, UNASKED = "accept", "reject", "not asked"
_ORDER = (
    *((rules, judge) for judge in (ACCEPT, REJECT) for rules in (ACCEPT, "unsure")),
    (REJECT, UNASKED),
)
_NOTE = Markdown(
    "Refused pairs that ran: those with the call of an accepted one, and a sample; only calls that"
    " fit their contract can run."
)


@dataclass
class VerdictCounts:
    """The pairs of one verdict of the rules and one of the judge. ran: of these, all calls; useful,
    invalid, proved, refuted: of those that ran."""

    rules: str
    judge: str
    pairs: int = 0
    ran: int = 0
    useful: int = 0
    invalid: int = 0
    proved: int = 0
    refuted: int = 0


def compare_verdicts(
    pairs: Iterable[Row], judgements: Iterable[Row], executions: Iterable[Row]
) -> list[dict[str, Any]]:
    """`VerdictCounts` as JSON, one per combination that occurs. pairs: rows of PAIRS, each once;
    pairs that failed, are twins or have no verdict yet are left out."""
    judged = {row["pair_id"]: row["verdict"] for row in judgements if row["verdict"]}
    rows = list(executions)
    tried = {**_group_refused(rows), **group_by_pair(rows)}
    counts: dict[tuple[str, str], VerdictCounts] = {}
    for pair in pairs:
        key = _read_verdicts(pair, judged)
        if key is None:
            continue
        cell = counts.setdefault(key, VerdictCounts(*key))
        cell.pairs += 1
        if (evidence := tried.get(pair["pair_id"])) is not None:
            cell.ran += 1
            cell.useful += evidence.useful
            cell.invalid += evidence.invalid
            cell.proved += evidence.proof == PROVED
            cell.refuted += evidence.proof == REFUTED
    return [asdict(counts[key]) for key in _ORDER if key in counts]


def list_conflicts(cells: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """(what contradicts what, how often, of how many executed pairs)."""
    all_cells = list(cells)

    def count(column: str, **verdict: str) -> tuple[int, int]:
        matching = [item for item in all_cells if verdict.items() <= item.items()]
        return sum(item[column] for item in matching), sum(item["ran"] for item in matching)

    return [
        ("accepted by the judge, refuted by execution", *count("refuted", judge=ACCEPT)),
        ("refused by the judge, useful when executed", *count("useful", judge=REJECT)),
        ("refused by the rules, useful when executed", *count("useful", rules=REJECT)),
    ]


def render_verdicts(cells: Sequence[Mapping[str, Any]]) -> Markdown:
    """The three verdicts as a table, and each contradiction with its 95% interval (Wilson)."""
    head = ["rules", "judge", "pairs", "ran", "useful", "invalid", "proved", "refuted"]
    table = make_markdown_table(head, [[cell[name] for name in head] for cell in cells])
    lines = []
    for what, hits, n in list_conflicts(cells):
        if n:
            ends = wilson_interval(hits, n)
            share = fill_markdown("{:.3f} [{:.3f}, {:.3f}]", hits / n, *ends)
            lines.append([what, hits, n, share])
    conflicts = make_markdown_table(["contradiction", "n", "of pairs that ran", "share"], lines)
    return join_markdown("\n\n", [table, conflicts, _NOTE])


def _read_verdicts(pair: Row, judged: Mapping[str, str]) -> tuple[str, str] | None:
    """(of the rules, of the judge); None where one of them has yet to decide."""
    if pair["status"] != "ok" or pair["twin_of"]:
        return None
    if pair["verdict"] == REJECT:
        return REJECT, UNASKED
    judged_as = judged.get(pair["pair_id"])
    return (str(pair["verdict"]), judged_as) if judged_as else None


def _group_refused(rows: Iterable[Row]) -> dict[str, PairEvidence]:
    """Refused pair -> what its call did."""
    return group_by_pair({**row, "pair_ids": row["refused_ids"] or "[]"} for row in rows)
