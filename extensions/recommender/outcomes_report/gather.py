"""The facts of the page of outcomes, gathered from the stores."""

import time
from typing import Any

import polars as pl

from assets.contracts.changes import CHANGES
from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import read_listed, read_weighed
from assets.outcomes.reliability.table import RELIABILITY
from assets.vectors.confusable_table import CONFUSABLES
from extensions.recommender.outcomes_report.alike import compare_alike
from extensions.recommender.outcomes_report.calibration import measure_models
from extensions.recommender.outcomes_report.changes import compare_changes
from extensions.recommender.outcomes_report.learning_curve import measure_curve
from extensions.recommender.outcomes_report.over_time import measure_days
from extensions.recommender.training.evaluation import RERANKER_EVALUATION
from extensions.recommender.training.role import ROLE
from training.releases.in_service import find_model_in_service
from warehouse.store import Warehouse

_ALIKE = ("server_id", "tool", "other_server_id", "other_tool", "tells_apart")


def gather_outcome_facts(warehouse: Warehouse, policy: ReliabilityPolicy) -> dict[str, Any]:
    """Facts of `write_outcomes`, of JSON's kinds. Raises SourceDecisionError, PointerBroken."""
    tables, home = warehouse.tables, warehouse.home
    weighed = read_weighed(warehouse, read_listed(tables), policy, time.time())
    calls = weighed.frame.filter(pl.col("weight") > 0)
    rows = [(str(ToolId.of_row(row)), row) for row in tables.read(RELIABILITY).to_dicts()]
    rates = {
        name: {"value": row["mean"], **{key: row[key] for key in ("low", "high", "n")}}
        for name, row in rows
        if row["current"] and row["calls"]
    }
    return {
        "days": measure_days(calls, {name: row["category"] for name, row in rows}),
        "curve": measure_curve(calls),
        "alike": compare_alike(tables.read(CONFUSABLES).select(_ALIKE).to_dicts(), rates),
        "calibration": measure_models(
            tables.read(RERANKER_EVALUATION).to_dicts(), find_model_in_service(home, ROLE).model
        ),
        "changes": compare_changes(calls, tables.read(CHANGES).to_dicts()),
    }
