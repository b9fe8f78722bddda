"""What an evaluation of sidecars says: shares of each arm, and the paired gain over another."""

from collections.abc import Callable, Sequence
from typing import Any

from extensions.sidecar.evaluation import ALONE
from extensions.sidecar.role import LADDER
from extensions.sidecar.rows import RIGHT
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.retriever import NothingToEvaluate
from training.figures import format_interval, shorten_model
from training.sets.split import UNSEEN_SERVER
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, make_markdown_table, quote_text

Figures = dict[str, Any]
Test = Callable[[Row], bool]


def _has_call(row: Row) -> bool:
    return bool(row["tool"])


def _is_flawed(row: Row) -> bool:
    return _has_call(row) and not row["was_right"]


def _is_right(row: Row) -> bool:
    return row["right"]


# name -> (which items it is of, what is counted)
MEASURES: dict[str, tuple[Test, Test]] = {
    "right": (lambda _: True, _is_right),
    "corrected": (_is_flawed, _is_right),
    "corrected_left": (lambda row: _is_flawed(row) and row["ladder"] != RIGHT, _is_right),
    "corrected_new_kinds": (lambda row: _is_flawed(row) and row["new_kind"], _is_right),
    "copied": (_is_flawed, lambda row: row["copied"]),
    "harmed": (lambda row: row["was_right"], lambda row: not row["right"]),
    "valid": (_has_call, lambda row: row["valid"]),
    "asked": (_has_call, lambda row: row["asked"]),
    "asked_rightly": (lambda row: not _has_call(row), _is_right),
}


def summarise_sidecar(
    rows: Sequence[Row], candidate: str, incumbent: str = LADDER
) -> dict[str, Any]:
    """{candidate, incumbent, n, tools, servers, drawn_over, arms: {arm: {measure: figure}}, gain,
    kept, MEASURE: {candidate, incumbent}}: of servers never trained on; figures {value, low, high,
    n}, drawn over servers. `gain`: of what is right; `kept`: of calls that were right before.
    Raises NothingToEvaluate."""
    held = [row for row in rows if row["split"] == UNSEEN_SERVER]
    arms: dict[str, list[Row]] = {}
    for row in sorted(held, key=lambda row: row["item_id"]):
        arms.setdefault(row["model"], []).append(row)
    if candidate not in arms or incumbent not in arms:
        found = ", ".join(name[:12] for name in arms) or "none"
        raise NothingToEvaluate(
            f"no drafts of unseen servers for {candidate[:12]} and {incumbent[:12]}: found {found};"
            " more servers, or more pairs of them, are needed"
        )
    own, figures = arms[candidate], {name: _measure_arm(of) for name, of in arms.items()}
    return {
        **{
            name: {"candidate": figures[candidate][name], "incumbent": figures[incumbent][name]}
            for name in MEASURES
        },
        "candidate": candidate,
        "incumbent": incumbent,
        "n": len(own),
        "tools": len({(row["server_id"], row["tool"]) for row in own}),
        "servers": len({row["server_id"] for row in own}),
        "drawn_over": "servers",
        "arms": figures,
        "gain": _measure_gain(own, arms[incumbent], lambda _: True),
        "kept": _measure_gain(own, arms[incumbent], lambda row: row["was_right"]),
    }


def _measure_arm(rows: Sequence[Row]) -> Figures:
    figures = {}
    for name, (is_counted, holds) in MEASURES.items():
        own = [row for row in rows if is_counted(row)]
        values = [float(holds(row)) for row in own]
        figures[name] = bootstrap_mean(values, [row["server_id"] for row in own]).as_dict()
    return figures


def _measure_gain(new: Sequence[Row], old: Sequence[Row], is_counted: Test) -> Figures:
    """The paired difference of what is right."""
    pairs = [pair for pair in zip(new, old, strict=True) if is_counted(pair[0])]
    better, worse = ([float(pair[side]["right"]) for pair in pairs] for side in (0, 1))
    servers = [one["server_id"] for one, _ in pairs]
    return bootstrap_difference(better, worse, servers).as_dict()


def render_arms_table(summary: Figures) -> Markdown:
    """Every arm and measure, each figure with its interval and n."""
    rows = [
        (quote_text(_shorten_arm(arm)), *map(_format_figure, figures.values()))
        for arm, figures in summary["arms"].items()
    ]
    return make_markdown_table(["arm", *MEASURES], rows)


def _shorten_arm(arm: str) -> str:
    return shorten_model(arm.removesuffix(ALONE)) + (ALONE if arm.endswith(ALONE) else "")


def _format_figure(figure: Figures) -> str:
    return f"{format_interval(figure)} ({figure['n']})" if figure["n"] else "-"
