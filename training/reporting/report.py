"""The training report of a run: what was measured, on how much, beside which baseline.

<home>/reports/<run>/report.md, *.png, figures.json
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.drift.drift import render_drift_part
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import NothingToEvaluate
from training.reporting.models import (
    make_plot_places,
    render_caller_part,
    render_champion_part,
    render_retriever_part,
    set_part,
)
from training.reporting.plots import choose_plots, draw_plot
from training.role import BASELINE
from warehouse.extensions import REPORTS, load_extensions
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import (
    Markdown,
    embed_image,
    escape_markdown,
    fill_markdown,
    join_markdown,
    mark_markdown,
)
from warehouse.storage.files import write_changed
from warehouse.store import Warehouse

_DRAWN_BY = ("training/reporting", "training/figures.py", "training/evaluation/caller_markdown.py")
_PLACE = re.compile(r"(?m)^!\[([\w ]*)\]\((\w+)\.png\)(?:\n|$)")  # a line of its own: ours


def write_report(home: Path, run: str, facts: Mapping[str, Any]) -> Path:
    """Writes `<home>/reports/<run>/report.md` with its plots; returns the Markdown's path.

    facts: manifest; retriever, caller: summaries beside the untrained models; caller_champion: one
    beside the champion; retriever_card, caller_card: of the trained models; champions, release,
    drift; ablations: Markdown. What is None or absent was not done, and the report says so.
    """
    folder = home / "reports" / run
    folder.mkdir(parents=True, exist_ok=True)
    drawn = choose_plots(facts)
    pictures = PictureStore(home, *_DRAWN_BY)
    for name, draw in drawn.items():
        write_changed(folder / f"{name}.png", draw_plot(pictures, f"report-{name}", draw))
    text = join_markdown("\n\n", filter(None, _render_report_parts(run, facts)))
    path = folder / "report.md"
    write_changed(path, _drop_missing_plots(text, drawn).encode() + b"\n")
    left_out = ("manifest", "retriever_card", "caller_card")
    figures = {name: fact for name, fact in facts.items() if name not in left_out}
    write_changed(folder / "figures.json", json.dumps(figures, indent=1).encode())
    return path


def inline_plots(path: Path) -> Markdown:
    """A report with its plots as data URLs, so that a page which has no files shows them."""

    def embed_plot(place: re.Match[str]) -> str:
        png = (path.parent / f"{place[2]}.png").read_bytes()
        return fill_markdown("{}\n", embed_image(place[1], png))

    return mark_markdown(_PLACE.sub(embed_plot, path.read_text()))


def _render_report_parts(run: str, facts: Mapping[str, Any]) -> list[Markdown]:
    manifest = facts["manifest"]
    return [
        fill_markdown("# Training report, {}", run),
        set_part(manifest),
        render_retriever_part(facts.get("retriever_card"), facts.get("retriever"), manifest),
        render_caller_part(
            facts.get("caller_card"), facts.get("caller"), facts.get("caller_champion")
        ),
        join_markdown("\n", make_plot_places("loss")),
        render_champion_part(facts.get("champions") or (), facts.get("release")),
        render_drift_part(facts.get("drift") or ()),
        _render_ablation_part(facts.get("ablations")),
    ]


def _render_ablation_part(ablations: Markdown | None) -> Markdown:
    """`ablations`: what the extension that runs them renders; its headings a level down."""
    text = escape_markdown(ablations or "").strip()
    if not text:
        return Markdown("")
    lower = mark_markdown(re.sub(r"(?m)^(#+ )", r"#\1", text))
    return lower if lower.startswith("## Ablations") else fill_markdown("## Ablations\n{}", lower)


def render_ablations(warehouse: Warehouse) -> Markdown | None:
    """The ablations as the extension that runs them renders them; None where none were run."""
    render = load_extensions(REPORTS).get("ablations")
    return render(warehouse) if render else None


def compare_with_champion(
    warehouse: Warehouse, caller: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The candidate beside the third model that the run asked: the champion it was to replace.
    None where the baseline was champion. caller: the candidate's summary beside the baseline."""
    if caller is None:
        return None
    candidate = caller["candidate"]
    rows = warehouse.tables.read(CALLER_EVALUATION).to_dicts()
    others = sorted({row["model"] for row in rows} - {BASELINE, candidate})
    if not others:
        return None
    try:
        return summarise_calls(rows, candidate, others[0])
    except NothingToEvaluate:
        return None


def _drop_missing_plots(text: Markdown, drawn: Mapping[str, Any]) -> str:
    """The text without places for plots that show nothing."""
    filled = _PLACE.sub(lambda place: place[0] if place[2] in drawn else "", text)
    return re.sub(r"\n{3,}", "\n\n", filled).strip()
