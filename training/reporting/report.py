"""The training report of a run: what was measured, on how much, beside which baseline.

<home>/reports/<run>/report.md, *.png, figures.json
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.figures import Json
from training.reporting.extra_sections import (
    render_ablation_part,
    render_agent_part,
    render_contamination_part,
    render_not_run_part,
    render_outside_part,
)
from training.reporting.models import (
    make_plot_places,
    render_caller_part,
    render_champion_part,
    render_retriever_part,
)
from training.reporting.plots import choose_plots
from training.reporting.training_set import set_part
from warehouse.storage.files import write_atomically

_PLACE = re.compile(r"!\[[^\]]*\]\((\w+)\.png\)\n?")


def write_report(
    home: Path,
    run: str,
    *,
    manifest: Json,
    retriever_card: Json | None,
    retriever: Json | None,
    caller_card: Json | None,
    caller: Json | None,
    caller_champion: Json | None = None,
    champions: Sequence[Json] = (),
    release: Json | None = None,
    drift: Json | None = None,
    ablations: str | None = None,
    contamination: Sequence[Json] = (),
    outside: Sequence[Json] = (),
    agent: Sequence[Json] = (),
) -> Path:
    """Writes `<home>/reports/<run>/report.md` with its plots; returns the Markdown's path.

    `retriever` is a `recall_summary`, `caller` a `call_summary` beside the baseline,
    `caller_champion` one beside the champion, the cards are those of the trained models; the last
    three are entries of `saved.py`. What is None was not done and the report says so.
    """
    facts: dict[str, Any] = {
        "manifest": manifest, "retriever_card": retriever_card, "retriever": retriever,
        "caller_card": caller_card, "caller": caller, "caller_champion": caller_champion,
        "champions": champions, "release": release, "drift": drift, "ablations": ablations,
        "contamination": contamination, "outside": outside, "agent": agent,
    }  # fmt: skip
    folder = home / "reports" / run
    folder.mkdir(parents=True, exist_ok=True)
    drawn = choose_plots(retriever_card, retriever, caller_card, caller)
    for name, draw in drawn.items():
        draw(folder / f"{name}.png")
    text = "\n\n".join(part for part in _render_report_parts(run, facts) if part)
    path = folder / "report.md"
    write_atomically(path, _drop_missing_plots(text, drawn).encode() + b"\n")
    told = ("manifest", "retriever_card", "caller_card")
    figures = {name: held for name, held in facts.items() if name not in told}
    write_atomically(folder / "figures.json", json.dumps(figures, indent=1).encode())
    return path


def inline_plots(path: Path) -> str:
    """A report with its plots as data URLs, so that a page which has no files shows them."""
    text = path.read_text()
    for plot in sorted(path.parent.glob("*.png")):
        data = base64.b64encode(plot.read_bytes()).decode()
        text = text.replace(f"({plot.name})", f"(data:image/png;base64,{data})")
    return text


def _render_report_parts(run: str, facts: Mapping[str, Any]) -> list[str]:
    manifest = facts["manifest"]
    return [
        f"# Training report, {run}",
        set_part(manifest),
        render_retriever_part(facts["retriever_card"], facts["retriever"], manifest),
        render_caller_part(facts["caller_card"], facts["caller"], facts["caller_champion"]),
        "\n".join(make_plot_places("loss")),
        render_champion_part(facts["champions"], facts["release"], facts["drift"]),
        render_ablation_part(facts["ablations"]),
        render_outside_part(facts["outside"]),
        render_contamination_part(facts["contamination"]),
        render_agent_part(facts["agent"]),
        render_not_run_part(facts),
    ]


def _drop_missing_plots(text: str, drawn: Mapping[str, Any]) -> str:
    """The text without places for plots that show nothing."""
    kept = _PLACE.sub(lambda place: place[0] if place[1] in drawn else "", text)
    return re.sub(r"\n{3,}", "\n\n", kept).strip()
