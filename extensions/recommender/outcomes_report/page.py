"""The page of outcomes as files.

<home>/reports/outcomes/report.md, *.png, figures.json
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from extensions.recommender.outcomes_report.alike import render_alike
from extensions.recommender.outcomes_report.calibration import render_calibration
from extensions.recommender.outcomes_report.changes import render_changes
from extensions.recommender.outcomes_report.learning_curve import render_curve
from extensions.recommender.outcomes_report.over_time import render_days
from extensions.recommender.outcomes_report.plots import choose_outcome_plots
from training.reporting.drawing import draw_plot
from warehouse.pictures import Pictures
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown
from warehouse.storage.files import write_changed

_DRAWN_BY = ("training/reporting", "training/figures.py", "assets/outcomes/reliability")
_PARTS: Mapping[str, tuple[Markdown, Callable[[Any], Markdown]]] = {
    "days": (Markdown("Success over time"), render_days),
    "curve": (Markdown("The order that was served"), render_curve),
    "alike": (Markdown("Look-alikes: which of them works"), render_alike),
    "calibration": (Markdown("Are the reranker's probabilities true?"), render_calibration),
    "changes": (Markdown("Before and after a change of contract"), render_changes),
}


def write_outcomes(home: Path, facts: Mapping[str, Any]) -> Path:
    """Writes the page with its plots in place of the last one; returns the Markdown's path. facts:
    those of `gather_outcome_facts`."""
    folder = home / "reports" / "outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = choose_outcome_plots(facts)
    pictures = Pictures(home, *_DRAWN_BY)
    for name in _PARTS:
        path = folder / f"{name}.png"
        if draw := drawn.get(name):
            write_changed(path, draw_plot(pictures, f"outcomes-{name}", draw))
        else:
            path.unlink(missing_ok=True)
    parts = [Markdown("# Outcomes")]
    for name, (title, render) in _PARTS.items():
        parts.append(fill_markdown("## {}", title))
        if name in drawn:
            parts.append(fill_markdown("![{}]({}.png)", name, name))
        parts.append(render(facts[name]))
    path = folder / "report.md"
    write_changed(path, join_markdown("\n\n", parts).encode() + b"\n")
    write_changed(folder / "figures.json", json.dumps(facts, indent=1).encode())
    return path
