"""The plot of the curriculum: what models get wrong, beside what was explored, written, granted."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import nan
from typing import Any

import polars as pl

from assets.synthesis.tables import EXPLORATIONS, PAIRS
from training.curriculum import KINDS, ErrorTally, Slots, read_tool_slots
from training.reporting.plots import make_canvas, render_png
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, embed_image
from warehouse.store import Warehouse

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
