"""Rules, judge and execution on the same pairs: where they agree, and where they contradict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assets.outcomes.table import PROVED, REFUTED, Tried, group_by_pair
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table
from warehouse.statistics import wilson_interval

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
class Verdicts:
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
    """`Verdicts` as JSON, one a combination that occurs. pairs: rows of PAIRS, each pair once; what
    failed, repeats another or was asked and not judged is left out."""
    judged = {row["pair_id"]: row["verdict"] for row in judgements if row["verdict"]}
    rows = list(executions)
    tried = {**_group_refused(rows), **group_by_pair(rows)}
    found: dict[tuple[str, str], Verdicts] = {}
    for pair in pairs:
        key = _read_verdicts(pair, judged)
        if key is None:
            continue
        cell = found.setdefault(key, Verdicts(*key))
        cell.pairs += 1
        if (one := tried.get(pair["pair_id"])) is not None:
            cell.ran += 1
            cell.useful += one.useful
            cell.invalid += one.invalid
            cell.proved += one.proof == PROVED
            cell.refuted += one.proof == REFUTED
    return [asdict(found[key]) for key in _ORDER if key in found]


def list_conflicts(cells: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """(what contradicts what, how often, of how many executed pairs)."""
    held = list(cells)

    def count(column: str, **verdict: str) -> tuple[int, int]:
        own = [one for one in held if verdict.items() <= one.items()]
        return sum(one[column] for one in own), sum(one["ran"] for one in own)

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
    found = judged.get(pair["pair_id"])
    return (str(pair["verdict"]), found) if found else None


def _group_refused(rows: Iterable[Row]) -> dict[str, Tried]:
    """Refused pair -> what its call did."""
    return group_by_pair({**row, "pair_ids": row["refused_ids"] or "[]"} for row in rows)
