"""The plot of the curriculum: what models get wrong, beside what was explored, written, granted."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any

from assets.synthesis.tables import EXPLORATIONS, PAIRS
from training.curriculum import KINDS, ErrorTally, Slots, read_tool_slots
from training.reporting.plots import File, draw_plot, make_canvas, save_figure
from warehouse.json_types import Row
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import Markdown, embed_image
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

Shares = Mapping[str, Sequence[float]]  # name on the axis -> its share of each series
_SERIES = (
    ("errors", "#c23b22", "o"),
    ("explored", "#7a9e3c", "s"),
    ("written", "#9aa3ad", "s"),
    ("granted", "#2a6fb0", "D"),
)
_TITLES = ("by task", "by kind of argument", "by tool")
_MOST, _LONGEST = 10, 26  # rows of a panel; characters of a name


def render_curriculum(warehouse: Warehouse, rows: Sequence[Row], tally: ErrorTally) -> Markdown:
    """The picture. Of each panel the rows with most errors, then with most grants; a row's shares
    are of all errors, useful explored calls, pairs and grants of the panel."""
    explored = [row[:2] for row in _read(warehouse, EXPLORATIONS, "outcome") if row[2] == "useful"]
    written = [row for row in _read(warehouse, PAIRS, "status", "task") if row[2] == "ok"]
    granted = [(row["server_id"], row["tool"], row["task"]) for row in rows]
    tools = [Counter(row[:2] for row in counted) for counted in (explored, written, granted)]
    slots = read_tool_slots(warehouse)
    by_task = Counter(row[3] for row in written), Counter(row[2] for row in granted)
    kinds = [_count_kinds(counts, slots) for counts in tools]
    panels = [
        _share(tally, [(name, name) for name in {*by_task[0], *by_task[1]}], [{}, *by_task]),
        _share(tally, [((KINDS, kind), kind) for kind in set().union(*kinds)], kinds),
        _share(tally, [(key, key) for key in set().union(*tools)], tools),
    ]
    pictures = PictureStore(warehouse.home, "training/reporting")
    return embed_image("curriculum", draw_plot(pictures, "curriculum", partial(_draw, panels)))


def _read(warehouse: Warehouse, spec: TableSpec, *columns: str) -> Iterator[tuple[Any, ...]]:
    frame = warehouse.tables.read(spec).unique(list(spec.key))  # several marketplaces hold a row
    return frame.select("server_id", "tool", *columns).iter_rows()


def _count_kinds(tools: Mapping[Any, int], slots: Slots) -> Counter[str]:
    counts = Counter[str]()
    for tool, n in tools.items():
        for kind in {kind for kind, _ in slots.get(tool, {}).values()}:
            counts[kind] += n
    return counts


def _share(
    tally: ErrorTally,
    names: Iterable[tuple[Hashable, Any]],
    counts: Sequence[Mapping[Any, int]],
) -> Shares:
    """names: (as in the tally, as in the counts)."""
    series = {name: [tally.errors[key], *(of.get(name, 0) for of in counts)] for key, name in names}
    totals = [sum(values) or nan for values in zip(*series.values(), strict=True)]
    ranked = sorted(series, key=lambda name: (-series[name][0], -series[name][-1], str(name)))
    labels = {name: "/".join(name) if isinstance(name, tuple) else name for name in ranked[:_MOST]}
    return {
        label if len(label) < _LONGEST else f"…{label[-_LONGEST:]}": [
            n / total for n, total in zip(series[name], totals, strict=True)
        ]
        for name, label in labels.items()
    }


def _draw(panels: Sequence[Shares], path: File) -> None:
    figure, listed = make_canvas(len(panels), (11, 3.8))
    for axes, title, shares in zip(listed, _TITLES, panels, strict=True):
        places = range(len(shares) - 1, -1, -1)
        for at, (name, colour, marker) in enumerate(_SERIES):
            values = [row[at] for row in shares.values()]
            axes.scatter(values, places, s=26, c=colour, marker=marker, label=name, alpha=0.85)
        axes.set_yticks(list(places), list(shares))
        axes.set_title(title, fontsize=8.5)
        axes.set_xlim(left=-0.01)
        axes.xaxis.set_major_formatter("{x:.0%}")
    save_figure(figure, listed, "Errors, and what was explored, written and granted: shares", path)
