"""What a report shows beyond a run's two models, gathered from the stores."""

from typing import Any

from training.evaluation.caller.summary import call_summary
from training.evaluation.caller_table import BASELINE, CALLER_EVALUATION
from training.evaluation.retriever import NothingToEvaluate
from training.evaluation.saved import AGENT, CONTAMINATION, OUTSIDE, kept
from warehouse.store import Warehouse

Json = dict[str, Any]


def more_facts(warehouse: Warehouse, caller: Json | None = None) -> Json:
    """Arguments of `write_report`, beside those of the run's own models. caller: the summary of
    the caller beside the baseline."""
    home = warehouse.home
    return {
        "caller_champion": beside_champion(warehouse, caller["candidate"]) if caller else None,
        "ablations": ablations(warehouse),
        "contamination": kept(home, CONTAMINATION),
        "outside": kept(home, OUTSIDE),
        "agent": kept(home, AGENT),
    }


def beside_champion(warehouse: Warehouse, candidate: str) -> Json | None:
    """The candidate beside the third model that the run asked: the champion it was to replace.
    None where the baseline was champion."""
    rows = warehouse.tables.read(CALLER_EVALUATION).to_dicts()
    others = sorted({row["model"] for row in rows} - {BASELINE, candidate})
    if not others:
        return None
    try:
        return call_summary(rows, candidate, others[0])
    except NothingToEvaluate:
        return None


def ablations(warehouse: Warehouse) -> str | None:
    """The ablations as Markdown; None where none were run."""
    from training.evaluation.ablations.run import ABLATIONS
    from training.evaluation.ablations.table import ablation_summary, ablation_table

    rows = warehouse.tables.read(ABLATIONS).to_dicts()
    return ablation_table(ablation_summary(rows)) if rows else None
