"""The plots of a report: bars with intervals, drops as dots, losses."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from training.evaluation.caller_markdown import CHANGES, MEASURES
from training.figures import Json, make_plot_label, sort_by_split, split_name, split_order
from training.reporting.drawing import Draw, File
from training.reporting.drift_page import draw_drift, has_points

Bars = Mapping[str, Sequence[Json]]  # name on the axis -> a figure of each model
_BEFORE, _AFTER = "#9aa3ad", "#2a6fb0"
_INK = "#30363d"


def choose_plots(facts: Mapping[str, Any]) -> dict[str, Draw]:
    """Name of a plot -> how to draw it into a file; only plots that show something. `facts`: those
    of `write_report`."""
    retriever, caller = facts.get("retriever"), facts.get("caller")
    cards = {"retriever": facts.get("retriever_card"), "caller (LoRA)": facts.get("caller_card")}
    result: dict[str, Draw] = {}
    losses = {
        name: card["losses"]
        for name, card in cards.items()
        if card and len(card.get("losses") or ()) > 1
    }
    if losses:
        result["loss"] = partial(_draw_losses, losses)
    drift = facts.get("drift")
    if drift and has_points(drift["history"]):
        result["drift"] = partial(draw_drift, drift["history"])
    if retriever:
        keys = (("Recall@1", "recall_at_1"), ("Recall@5", "recall_at_5"), ("NDCG@10", "ndcg_at_10"))
        result |= _plan_bars(
            "recall", retriever, _pair_figures(retriever, keys), "Retriever, unseen servers"
        )
        splits = {
            f"{split_name(name)}\n(n={held['n']})": _get_figure_pair(held["recall_at_1"])
            for name, held in sort_by_split(retriever.get("splits") or {})
        }
        if len(splits) > 1:
            result |= _plan_bars("recall_splits", retriever, splits, "Retriever, Recall@1 by split")
    if caller:
        result |= _plan_bars(
            "caller", caller, _pair_figures(caller, MEASURES), "Caller, unseen servers"
        )
        splits = _collect_caller_splits(caller)
        if len(splits) > 1:
            least = min(cell["candidates"] for cell in caller["cells"])
            title = f"Caller, AST by split, {least} candidates"
            result |= _plan_bars("caller_splits", caller, splits, title)
        drops = [each for each in caller.get("invariance") or () if each["drop_candidate"]["n"]]
        if drops:
            names = make_plot_label(caller["incumbent"]), make_plot_label(caller["candidate"])
            result["invariance"] = partial(_draw_drops, drops, names)
    return result


def _pair_figures(summary: Json, keys: Sequence[tuple[str, str]]) -> dict[str, Sequence[Json]]:
    words = {"Parsed as a call": "Parsed", "Valid call": "Valid"}
    return {
        words.get(name, name.replace(" F1", "\nF1")): _get_figure_pair(summary[key])
        for name, key in keys
        if key in summary
    }


def _get_figure_pair(held: Json) -> Sequence[Json]:
    return held["incumbent"], held["candidate"]


def _collect_caller_splits(caller: Json) -> dict[str, Sequence[Json]]:
    """AST per split at the fewest candidates; a split with two kinds of distractors has a bar of
    each."""
    cells = caller.get("cells") or ()
    least = min((cell["candidates"] for cell in cells), default=0)
    held = sorted(
        (cell for cell in cells if cell["candidates"] == least and cell["n"]),
        key=lambda cell: (split_order(cell["split"]), cell["distractors"]),
    )
    kinds = {cell["distractors"] for cell in held}
    out = {}
    for cell in held:
        kind = f"\n{cell['distractors']}" if len(kinds) > 1 else ""
        out[f"{split_name(cell['split'])}{kind}\n(n={cell['n']})"] = _get_figure_pair(
            cell["ast_ok"]
        )
    return out


def _plan_bars(name: str, summary: Json, groups: Bars, title: str) -> dict[str, Draw]:
    measured = {key: held for key, held in groups.items() if any(item["n"] for item in held)}
    if not measured:
        return {}
    names = make_plot_label(summary["incumbent"]), make_plot_label(summary["candidate"])
    return {name: partial(_draw_bars, measured, names, title)}


def _draw_bars(groups: Bars, names: tuple[str, str], title: str, path: File) -> None:
    figure, axes = _make_canvas()
    width = 0.38
    for at, (name, colour) in enumerate(zip(names, (_BEFORE, _AFTER), strict=True)):
        held = [figures[at] for figures in groups.values()]
        values = [item["value"] for item in held]
        spread = [
            [max(0.0, item["value"] - item["low"]) for item in held],
            [max(0.0, item["high"] - item["value"]) for item in held],
        ]
        places = [i + (at - 0.5) * width for i in range(len(groups))]
        axes.bar(
            places, values, width * 0.94, label=name, color=colour, yerr=spread,
            error_kw={"ecolor": _INK, "elinewidth": 1, "capsize": 2.5},
        )  # fmt: skip
        for place, one in zip(places, held, strict=True):
            label = f"{one['value']:.2f}" if one["n"] else "–"
            axes.annotate(
                label, (place, max(one["value"], one["high"])), xytext=(0, 2), ha="center",
                textcoords="offset points", fontsize=6.5, color=_INK,
            )  # fmt: skip
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.tick_params(axis="x", length=0)
    _save_figure(figure, [axes], title, path, small=6.5 if len(groups) > 6 else 7.5)


def _draw_drops(drops: Sequence[Json], names: tuple[str, str], path: File) -> None:
    """One panel a measure; a dot a model and kind of change, in points."""
    measures = [key for key in ("tool_ok", "ast_ok") if any(d["measure"] == key for d in drops)]
    kinds = list(dict.fromkeys(each["perturbation"] for each in drops))
    figure, panels = _make_canvas(len(measures), sharey=True, sharex=True)
    titles = {"tool_ok": "Tool", "ast_ok": "AST"}
    for axes, measure in zip(panels if len(measures) > 1 else [panels], measures, strict=True):
        axes.axvline(0, color=_INK, linewidth=0.8)
        for each in (drop for drop in drops if drop["measure"] == measure):
            row = len(kinds) - 1 - kinds.index(each["perturbation"])
            for at, who in enumerate(("drop_incumbent", "drop_candidate")):
                _draw_dot(axes, each[who], row + 0.13 - 0.26 * at, (_BEFORE, _AFTER)[at])
        axes.set_title(titles[measure], fontsize=9)
        axes.set_yticks(range(len(kinds)), [CHANGES.get(kind, kind) for kind in reversed(kinds)])
        axes.set_ylim(-0.6, len(kinds) - 0.4)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("drop in points", fontsize=8)
        for name, colour in zip(names, (_BEFORE, _AFTER), strict=True):
            axes.plot([], [], "o", color=colour, label=name, markersize=5)
    axes_list = list(panels) if len(measures) > 1 else [panels]
    _save_figure(figure, axes_list, "What a changed schema costs", path)


def _draw_dot(axes: Any, held: Json, row: float, colour: str) -> None:
    if held["n"]:
        value, low, high = (100 * held[name] for name in ("value", "low", "high"))
        axes.plot([low, high], [row, row], color=colour, linewidth=1.6, solid_capstyle="round")
        axes.plot([value], [row], "o", color=colour, markersize=5)


def _draw_losses(losses: Mapping[str, Sequence[float]], path: File) -> None:
    """Each model on axes of its own: their losses are not of one scale."""
    figure, panels = _make_canvas(len(losses))
    listed = list(panels) if len(losses) > 1 else [panels]
    for axes, (name, values) in zip(listed, losses.items(), strict=True):
        axes.plot(range(1, len(values) + 1), values, color=_BEFORE, linewidth=0.9)
        axes.plot(*_smooth_losses(values), color=_AFTER, linewidth=1.8)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
    listed[0].set_ylabel("loss", fontsize=8)
    _save_figure(figure, listed, "Training loss", path)


def _smooth_losses(values: Sequence[float]) -> tuple[list[int], list[float]]:
    """A mean over a tenth of the steps around each; fewer at both ends, so that it lags nowhere."""
    half = len(values) // 20
    means = []
    for at in range(len(values)):
        near = min(half, at, len(values) - 1 - at)
        part = values[at - near : at + near + 1]
        means.append(sum(part) / len(part))
    return list(range(1, len(values) + 1)), means


def _make_canvas(panels: int = 1, **options: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels, **options)


def _save_figure(
    figure: Any, panels: Sequence[Any], title: str, path: File, *, small: float = 7.5
) -> None:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#b6bcc4")
        axes.tick_params(axis="both", color="#b6bcc4", labelcolor=_INK, labelsize=7.5)
        axes.tick_params(axis="x", labelsize=small)
        axes.grid(axis="y", color="#e6e9ed", linewidth=0.7)
        axes.set_axisbelow(True)
    handles, names = panels[0].get_legend_handles_labels()
    figure.suptitle(title, fontsize=10, x=0.01, ha="left", color=_INK)
    if handles:
        figure.legend(
            handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=8
        )
    figure.savefig(path, dpi=140)
