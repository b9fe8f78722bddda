"""The plots of a report: bars with intervals, losses."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from training.evaluation.caller_markdown import MEASURES
from training.figures import Json, make_plot_label
from warehouse.pictures import PictureStore

File = Path | IO[bytes]
Draw = partial[None]  # a function with all that it shows, but for the file that it writes
Bars = Mapping[str, Sequence[Json]]  # name on the axis -> a figure of each model
_BEFORE, _AFTER = "#9aa3ad", "#2a6fb0"
_INK = "#30363d"


def draw_plot(pictures: PictureStore, name: str, draw: Draw) -> bytes:
    """The PNG of a plot, drawn where the home has no such picture. name: in the home."""

    def draw_png() -> bytes:
        picture = io.BytesIO()
        draw(picture)
        return picture.getvalue()

    return pictures.draw(name, [draw.func.__name__, draw.args, draw.keywords], draw_png)


def choose_plots(facts: Mapping[str, Any]) -> dict[str, Draw]:
    """Plot -> how to draw it into a file, if it shows something. `facts`: of `write_report`."""
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
    if retriever:
        keys = (("Recall@1", "recall_at_1"), ("Recall@5", "recall_at_5"), ("NDCG@10", "ndcg_at_10"))
        result |= _plan_bars(
            "recall", retriever, _pair_figures(retriever, keys), "Retriever, unseen servers"
        )
    if caller:
        result |= _plan_bars(
            "caller", caller, _pair_figures(caller, MEASURES), "Caller, unseen servers"
        )
    return result


def _pair_figures(summary: Json, keys: Sequence[tuple[str, str]]) -> dict[str, Sequence[Json]]:
    words = {"Parsed as a call": "Parsed", "Valid call": "Valid"}
    return {
        words.get(name, name.replace(" F1", "\nF1")): (
            summary[key]["incumbent"],
            summary[key]["candidate"],
        )
        for name, key in keys
        if key in summary
    }


def _plan_bars(name: str, summary: Json, groups: Bars, title: str) -> dict[str, Draw]:
    measured = {key: pair for key, pair in groups.items() if any(item["n"] for item in pair)}
    if not measured:
        return {}
    names = make_plot_label(summary["incumbent"]), make_plot_label(summary["candidate"])
    return {name: partial(_draw_bars, measured, names, title)}


def _draw_bars(groups: Bars, names: tuple[str, str], title: str, path: File) -> None:
    figure, axes = make_canvas()
    width = 0.38
    for at, (name, colour) in enumerate(zip(names, (_BEFORE, _AFTER), strict=True)):
        bars = [figures[at] for figures in groups.values()]
        values = [bar["value"] for bar in bars]
        spread = [
            [max(0.0, bar["value"] - bar["low"]) for bar in bars],
            [max(0.0, bar["high"] - bar["value"]) for bar in bars],
        ]
        places = [i + (at - 0.5) * width for i in range(len(groups))]
        axes.bar(
            places, values, width * 0.94, label=name, color=colour, yerr=spread,
            error_kw={"ecolor": _INK, "elinewidth": 1, "capsize": 2.5},
        )  # fmt: skip
        for place, bar in zip(places, bars, strict=True):
            label = f"{bar['value']:.2f}" if bar["n"] else "–"
            axes.annotate(
                label, (place, max(bar["value"], bar["high"])), xytext=(0, 2), ha="center",
                textcoords="offset points", fontsize=6.5, color=_INK,
            )  # fmt: skip
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.tick_params(axis="x", length=0)
    save_figure(figure, [axes], title, path)


def _draw_losses(losses: Mapping[str, Sequence[float]], path: File) -> None:
    """Each model on axes of its own: their losses are not of one scale."""
    figure, panels = make_canvas(len(losses))
    listed = list(panels) if len(losses) > 1 else [panels]
    for axes, (name, values) in zip(listed, losses.items(), strict=True):
        axes.plot(range(1, len(values) + 1), values, color=_BEFORE, linewidth=0.9)
        # A mean over a tenth of the steps around each; fewer at both ends, so that it lags nowhere
        half = len(values) // 20
        means = []
        for at in range(len(values)):
            near = min(half, at, len(values) - 1 - at)
            part = values[at - near : at + near + 1]
            means.append(sum(part) / len(part))
        axes.plot(range(1, len(values) + 1), means, color=_AFTER, linewidth=1.8)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
    listed[0].set_ylabel("loss", fontsize=8)
    save_figure(figure, listed, "Training loss", path)


def make_canvas(panels: int = 1, size: tuple[float, float] = (6, 3.4)) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels)


def save_figure(figure: Any, panels: Sequence[Any], title: str, path: File) -> None:
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
    figure.savefig(path, dpi=140)
