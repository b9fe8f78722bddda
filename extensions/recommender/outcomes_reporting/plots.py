"""The plot of executions: outcomes by whom they are laid to, and useful shares."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.table import has_run
from assets.servers.probe.failure_kinds import BLAMES
from warehouse.json_types import Row
from warehouse.pictures import Pictures
from warehouse.sanitize.escape import escape_text
from warehouse.sanitize.markdown import Markdown, embed_image
from warehouse.statistics import wilson_interval

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
    shown = [_count_outcomes(rows), _measure_shares(rows), _count_ran(rows), len(rows)]
    pictures = Pictures(home, *_SOURCES)
    png = pictures.draw(f"executions-{name}", shown, lambda: draw_executions(rows))
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
    found = {name: Counter[str]() for name in (*OUTCOMES, _NOT_MADE)}
    for row in rows:
        found[row["outcome"] or _NOT_MADE][row["blame"] or _NOBODY] += 1
    return {name: own for name, own in reversed(found.items()) if own}


def _measure_shares(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """(server or tool, useful calls, calls that ran), best first from below."""
    ran = [row for row in rows if has_run(row)]
    column = "server_id" if len({row["server_id"] for row in ran}) > 1 else "tool"
    calls = Counter(row[column] for row in ran)
    useful = Counter(row[column] for row in ran if row["outcome"] == USEFUL)
    shown = calls.most_common(_MOST)
    found = [(str(name), useful[name], n) for name, n in shown]
    return sorted(found, key=lambda one: (one[1] / one[2], one[2], one[0]))


def _draw_outcomes(axis: Any, kinds: dict[str, Counter[str]]) -> None:
    starts = dict.fromkeys(kinds, 0)
    for blame in (_NOBODY, *BLAMES):
        total = sum(own[blame] for own in kinds.values())
        if not total:
            continue
        widths = [own[blame] for own in kinds.values()]
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
