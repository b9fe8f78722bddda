"""Report: what a run's executions come to, for the asset's page."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
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
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import (
    Markdown,
    embed_image,
    fill_markdown,
    join_markdown,
    make_markdown_table,
)
from warehouse.sanitize.untrusted_text import escape_text
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


_INK, _QUIET, _GRID = "#1f2937", "#4b5563", "#e5e7eb"
_SOURCES = ("assets/outcomes", "assets/servers/probe/failure_kinds.py")  # whose code draws
_NOBODY, _NOT_MADE = "nobody", "not made"
_COLOURS = {
    _NOBODY: "#2563eb", "caller": "#dc2626", "tool": "#ea580c", "server": "#d97706",
    "credentials": "#7c3aed", "policy": "#6b7280", "upstream": "#0d9488", "us": "#111827",
}  # fmt: skip
_MOST = 24  # servers or tools of a plot, those with most calls
_LABEL = 44  # characters


def embed_plot(rows: Sequence[Row], home: Path, name: str) -> Markdown:
    """The plot as Markdown that holds it; says so where nothing was executed. name: of the picture
    that is kept in the home."""
    if not rows:
        return Markdown("nothing was executed")
    figures = [_count_outcomes(rows), _measure_shares(rows), _count_ran(rows), len(rows)]
    pictures = PictureStore(home, *_SOURCES)
    png = pictures.draw(f"executions-{name}", figures, lambda: draw_executions(rows))
    return embed_image("outcomes of executed calls", png)


def draw_executions(rows: Sequence[Row]) -> bytes:
    """A PNG: outcomes as bars, coloured by whom they are laid to; below, the useful share of each
    server (of each tool, where there is one server) with Wilson's 95% interval."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kinds, shares = _count_outcomes(rows), _measure_shares(rows)
    heights = [len(kinds) + 2.2, len(shares) + 1.6] if shares else [len(kinds) + 2.2]
    figure = Figure(figsize=(8.4, 1.0 + 0.27 * sum(heights)), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_outcomes(panels[0], kinds)
    if shares:
        _draw_shares(panels[1], shares)
    figure.suptitle(
        f"Calls that really ran: {_count_ran(rows):,} of {len(rows):,} wanted",
        x=0.01, ha="left", fontsize=12, color=_INK, fontweight="bold",
    )  # fmt: skip
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def _count_ran(rows: Sequence[Row]) -> int:
    return sum(map(has_run, rows))


def _count_outcomes(rows: Sequence[Row]) -> dict[str, Counter[str]]:
    """Outcome -> whom it is laid to -> rows; the last one first, as bars are drawn from below."""
    counts = {name: Counter[str]() for name in (*OUTCOMES, _NOT_MADE)}
    for row in rows:
        counts[row["outcome"] or _NOT_MADE][row["blame"] or _NOBODY] += 1
    return {name: blames for name, blames in reversed(counts.items()) if blames}


def _measure_shares(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """(server or tool, useful calls, calls that ran), best first from below."""
    ran = [row for row in rows if has_run(row)]
    column = "server_id" if len({row["server_id"] for row in ran}) > 1 else "tool"
    calls = Counter(row[column] for row in ran)
    useful = Counter(row[column] for row in ran if row["outcome"] == USEFUL)
    most_called = calls.most_common(_MOST)
    shares = [(str(name), useful[name], n) for name, n in most_called]
    return sorted(shares, key=lambda item: (item[1] / item[2], item[2], item[0]))


def _draw_outcomes(axis: Any, kinds: dict[str, Counter[str]]) -> None:
    starts = dict.fromkeys(kinds, 0)
    for blame in (_NOBODY, *BLAMES):
        total = sum(blames[blame] for blames in kinds.values())
        if not total:
            continue
        widths = [blames[blame] for blames in kinds.values()]
        axis.barh(
            range(len(kinds)), widths, left=list(starts.values()), height=0.68,
            color=_COLOURS[blame], label=f"{blame} {total:,}",
        )  # fmt: skip
        starts = {name: start + kinds[name][blame] for name, start in starts.items()}
    for place, total in enumerate(starts.values()):
        axis.annotate(
            f"{total:,}", (total, place), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=8, color=_INK,
        )  # fmt: skip
    _format_axis(
        axis, [name.replace("_", " ") for name in kinds], "outcomes, by whom they are laid to"
    )
    axis.set_xlim(0, max(starts.values()) * 1.08)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(
        frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.12), ncols=8,
        handlelength=1.0, columnspacing=1.2,
    )  # fmt: skip


def _draw_shares(axis: Any, shares: Sequence[tuple[str, int, int]]) -> None:
    for place, (_, useful, n) in enumerate(shares):
        low, high = wilson_interval(useful, n)
        axis.plot([low, high], [place, place], color=_COLOURS[_NOBODY], alpha=0.3, linewidth=5)
        axis.scatter([useful / n], [place], color=_COLOURS[_NOBODY], s=30, zorder=3, clip_on=False)
    labels = [f"{_shorten(name)}   {useful} of {n}" for name, useful, n in shares]
    _format_axis(axis, labels, "useful share of the calls that ran, 95% interval")
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def _format_axis(axis: Any, labels: Sequence[str], title: str) -> None:
    # Names are third parties': a dollar sign in them is no formula.
    axis.set_yticks(range(len(labels)), labels, fontsize=8.5, color=_INK, parse_math=False)
    axis.set_ylim(-0.6, len(labels) - 0.4)
    axis.tick_params(axis="x", labelsize=8, colors=_QUIET, length=0)
    axis.tick_params(axis="y", length=0, pad=7)
    axis.grid(axis="x", color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axis.set_title(title, loc="left", fontsize=9.5, color=_INK)


def _shorten(name: str) -> str:
    """A name as printable ASCII, which the plot's font has."""
    plain = escape_text(name).encode("ascii", "replace").decode()
    return plain if len(plain) <= _LABEL else f"{plain[: _LABEL - 3]}..."


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
