"""What a report shows beyond a run's two models, gathered from the stores."""

from typing import Any

from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import NothingToEvaluate
from training.evaluation.saved import AGENT, CONTAMINATION, OUTSIDE, load_evaluations
from training.reporting.executions import summarise_executions
from training.role import BASELINE
from warehouse.extensions import REPORTS, load_extensions
from warehouse.sanitize.markdown import Markdown
from warehouse.store import Warehouse

Json = dict[str, Any]


def gather_report_facts(
    warehouse: Warehouse, caller: Json | None = None, retriever: Json | None = None
) -> Json:
    """Facts of `write_report`, beside those of the run's own models. caller: the summary of
    the caller beside the baseline; retriever: of the retriever beside the untrained one."""
    home = warehouse.home
    return {
        "caller_champion": compare_with_champion(warehouse, caller["candidate"])
        if caller
        else None,
        "executions": summarise_executions(
            warehouse, str(retriever["candidate"]) if retriever else None
        ),
        "ablations": _render_ablations(warehouse),
        "contamination": load_evaluations(home, CONTAMINATION),
        "outside": load_evaluations(home, OUTSIDE),
        "agent": load_evaluations(home, AGENT),
    }


def compare_with_champion(warehouse: Warehouse, candidate: str) -> Json | None:
    """The candidate beside the third model that the run asked: the champion it was to replace.
    None where the baseline was champion."""
    rows = warehouse.tables.read(CALLER_EVALUATION).to_dicts()
    others = sorted({row["model"] for row in rows} - {BASELINE, candidate})
    if not others:
        return None
    try:
        return summarise_calls(rows, candidate, others[0])
    except NothingToEvaluate:
        return None


def _render_ablations(warehouse: Warehouse) -> Markdown | None:
    """The ablations as the extension that runs them renders them; None where none were run."""
    render = load_extensions(REPORTS).get("ablations")
    return render(warehouse) if render else None
