"""The plots of the report and of the curriculum, as PNG."""

import io
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import nan
from typing import Any

import polars as pl

from assets.synthesis.tables import EXPLORATIONS, PAIRS
from training.curriculum import KINDS, ErrorTally, Slots, read_tool_slots
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, embed_image, shrink_png
from warehouse.store import Warehouse

_RAW, _MEAN = "#9aa3ad", "#2a6fb0"
_INK = "#30363d"


def draw_losses(losses: Mapping[str, Sequence[float]]) -> bytes:
    """Each model on axes of its own: their losses are not of one scale."""
    figure, panels = make_canvas(len(losses))
    listed = list(panels) if len(losses) > 1 else [panels]
    for axes, (name, values) in zip(listed, losses.items(), strict=True):
        axes.plot(range(1, len(values) + 1), values, color=_RAW, linewidth=0.9)
        # A mean over a tenth of the steps around each; fewer at both ends, so that it lags nowhere
        half = len(values) // 20
        means = []
        for at in range(len(values)):
            near = min(half, at, len(values) - 1 - at)
            part = values[at - near : at + near + 1]
            means.append(sum(part) / len(part))
        axes.plot(range(1, len(values) + 1), means, color=_MEAN, linewidth=1.8)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
    listed[0].set_ylabel("loss", fontsize=8)
    return render_png(figure, listed, "Training loss")


def make_canvas(panels: int = 1, size: tuple[float, float] = (6, 3.4)) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels)


def render_png(figure: Any, panels: Sequence[Any], title: str) -> bytes:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#b6bcc4")
        axes.tick_params(axis="both", color="#b6bcc4", labelcolor=_INK, labelsize=7.5)
        axes.grid(axis="y", color="#e6e9ed", linewidth=0.7)
        axes.set_axisbelow(True)
    handles, names = panels[0].get_legend_handles_labels()
    figure.suptitle(title, fontsize=10, x=0.01, ha="left", color=_INK)
    if handles:
        figure.legend(
            handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=8
        )
    picture = io.BytesIO()
    figure.savefig(picture, dpi=140)
    return shrink_png(picture.getvalue())


Shares = Mapping[str, Sequence[float]]  # name on the axis -> its share of each series
_SERIES = {"errors": "#c23b22", "explored": "#7a9e3c", "written": "#9aa3ad", "granted": "#2a6fb0"}
_TITLES = ("by task", "by kind of argument", "by tool")
_MOST, _LONGEST = 10, 20  # rows of a panel; characters of a name


def render_curriculum(warehouse: Warehouse, rows: Sequence[Row], tally: ErrorTally) -> Markdown:
    """The picture. Of each panel the rows with most errors, then with most grants; a row's shares
    are of all errors, useful explored calls, pairs and grants of the panel."""
    tables, names = warehouse.tables, ("server_id", "tool", "task")
    useful = tables.read(EXPLORATIONS).filter(pl.col("outcome") == "useful")
    explored = Counter(useful.unique("exploration_id").select(names[:2]).iter_rows())
    pairs = tables.read(PAIRS).filter(pl.col("status") == "ok").unique("pair_id")
    written = list(pairs.select(names).iter_rows())
    granted = [tuple(row[name] for name in names) for row in rows]
    tools = [explored, *(Counter(row[:2] for row in counted) for counted in (written, granted))]
    tasks = [Counter(), *(Counter(row[2] for row in counted) for counted in (written, granted))]
    slots = read_tool_slots(warehouse)
    kinds = [_count_kinds(counts, slots) for counts in tools]
    panels = [
        _share(tally, {name: name for name in set().union(*tasks)}, tasks),
        _share(tally, {name: (KINDS, name) for name in set().union(*kinds)}, kinds),
        _share(tally, {name: name for name in set().union(*tools)}, tools),
    ]
    return embed_image("curriculum", _draw(panels))


def _count_kinds(tools: Mapping[Any, int], slots: Slots) -> Counter[str]:
    counts = Counter[str]()
    for tool, n in tools.items():
        counts += Counter(dict.fromkeys({kind for kind, _ in slots.get(tool, {}).values()}, n))
    return counts


def _share(
    tally: ErrorTally, names: Mapping[Any, Hashable], counts: Sequence[Mapping[Any, int]]
) -> Shares:
    """names: as in the counts -> as in the tally."""
    series = {
        name: [tally.errors[key], *(of[name] for of in counts)] for name, key in names.items()
    }
    totals = [sum(values) or nan for values in zip(*series.values(), strict=True)]
    ranked = sorted(series, key=lambda name: (-series[name][0], -series[name][-1], str(name)))
    shares = {name: [n / of for n, of in zip(series[name], totals, strict=True)] for name in ranked}
    return {_shorten(name): shares[name] for name in ranked[:_MOST]}


def _shorten(name: Any) -> str:
    label = name if isinstance(name, str) else "/".join(name)
    return label if len(label) <= _LONGEST else f"…{label[-_LONGEST:]}"


def _draw(panels: Sequence[Shares]) -> bytes:
    # 1,148 pixels: Dagster's dialog cuts a wider picture.
    figure, listed = make_canvas(len(panels), (8.2, 3.8))
    for axes, title, shares in zip(listed, _TITLES, panels, strict=True):
        places = range(len(shares) - 1, -1, -1)
        for at, (name, colour) in enumerate(_SERIES.items()):
            values = [row[at] for row in shares.values()]
            axes.scatter(values, places, s=26, c=colour, marker="ossD"[at], label=name)
        axes.set_yticks(list(places), list(shares))
        axes.set_title(title, fontsize=8.5)
        axes.set_xlim(left=-0.01)
        axes.xaxis.set_major_formatter("{x:.0%}")
    return render_png(figure, listed, "Errors, and what was explored, written and granted: shares")
