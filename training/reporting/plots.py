"""The plots of the report and of the curriculum, as PNG."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from warehouse.sanitize.markdown import shrink_png

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
