"""What the last training left: the current set, the last adapter of a role, its evaluation."""

from collections.abc import Collection
from typing import Any

import polars as pl

from assets.synthesis.tables import ONE_CALL
from training.adapter_table import make_adapter_table
from training.evaluation.caller.summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import RETRIEVER_EVALUATION, NothingToEvaluate, summarise_recall
from training.runtime.model_store import read_model_card
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

Row = dict[str, Any]


class NotTrained(LookupError):
    """A role of which no adapter was ever published."""


def set_rows(
    warehouse: Warehouse, split: str, tasks: Collection[str] | None = ONE_CALL
) -> list[Row]:
    """Rows of the current training set in one split, of `tasks` (None: all); of one call to one
    tool unless told otherwise."""
    rows = warehouse.tables.read(TRAINING_SET).filter(pl.col("split") == split)
    if tasks is not None:
        rows = rows.filter(pl.col("task").is_in(list(tasks)))
    return rows.to_dicts()


def set_name(warehouse: Warehouse) -> str:
    """The digest of the current training set, "" before the first."""
    head = warehouse.tables.head(TRAINING_SET.name)
    return head.digest if head else ""


def read_last_adapter(warehouse: Warehouse, role: str) -> Row:
    """The role's last published adapter. Raises NotTrained."""
    rows = warehouse.tables.read(make_adapter_table(role)).to_dicts()
    if not rows:
        raise NotTrained(f"no {role} was trained yet: materialize {role}_adapter first")
    return rows[0]


def read_last_card(warehouse: Warehouse, role: str) -> Row | None:
    """The card of the role's last adapter, or None."""
    rows = warehouse.tables.read(make_adapter_table(role)).to_dicts()
    return read_model_card(warehouse.home, rows[0]["model"]) if rows else None


def read_last_summary(warehouse: Warehouse, role: str) -> Row | None:
    """The last evaluation of the last adapter against the untrained model, or None."""
    spec = RETRIEVER_EVALUATION if role == "retriever" else CALLER_EVALUATION
    rows = warehouse.tables.read(spec).to_dicts()
    last = warehouse.tables.read(make_adapter_table(role)).to_dicts()
    if not rows or not last or last[0]["model"] not in {row["model"] for row in rows}:
        return None
    measure = summarise_recall if role == "retriever" else summarise_calls
    try:
        return measure(rows, last[0]["model"])
    except NothingToEvaluate:  # rows of an older version of the table
        return None
