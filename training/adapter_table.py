"""The adapters' table: which model was trained last for each role, on what, and how it went."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl

from assets.columns import read_table_spec
from assets.synthesis.tables import ONE_CALL
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import RETRIEVER_EVALUATION, NothingToEvaluate, summarise_recall
from training.releases.in_service import find_model_in_service
from training.role import BASELINE, find_weights_flaw
from training.runtime.model_store import get_model_folder, read_model_card
from training.sets.training_set import TRAINING_SET
from warehouse.audit import AuditVerdict
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

# Nats a token. An update starts low and wanders (.16 to .57 in ten steps); the gates judge it.
_LOW, _LOW_UPDATE = 0.3, 1.0


def make_adapter_table(role: str) -> TableSpec:
    return read_table_spec(__file__, "adapter", f"{role}_adapter")


def make_adapter_row(card: Mapping[str, Any]) -> dict[str, Any]:
    facts = {**card, "model": card["name"]}
    return {name: facts[name] for name in make_adapter_table(card["role"]).columns}


def make_adapter_metadata(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the run's page shows of a training: its loss, speed, memory, and what it noted."""
    names = ("pairs", "loss_first", "loss_last", "steps", "seconds", "tokens_per_s", "step_ms")
    more = ("peak_mb", "packing_efficiency", "resumed_from", "profile")
    figures = {name: card[name] for name in (*names, *more) if card.get(name) is not None}
    notes = {"notes": "; ".join(card["notes"])} if card.get("notes") else {}
    return {**figures, "losses": list(card.get("losses", [])), **notes}


ADAPTER_RULES = {
    "training": "The training ended with an adapter, or says why there is none.",
    "loss_is_a_number": "No step's loss is infinite or NaN.",
    "loss_fell": "The loss fell over the training, or is close to zero.",
    "adapter_loads": "The adapter's weights can be read back.",
}
ITEM_RULES = {"test_items": "There are test items, and the model could be asked about them."}


def check_adapter_rules(home: Path, card: Mapping[str, Any]) -> list[AuditVerdict]:
    """The audit: the loss is a number and fell, and the adapter can be read."""
    losses, last = card["losses"], card["loss_last"]
    odd = sum(not math.isfinite(loss) for loss in losses)
    # Each step learns from other rows: of a dozen the ends alone rose (1.78 to 1.84) where the
    # halves fell (1.87 to 1.64).
    half = len(losses) // 2
    fell = last < card["loss_first"] or (half and mean(losses[half:]) < mean(losses[:half]))
    low = _LOW_UPDATE if card.get("start") else _LOW
    problem = find_weights_flaw(card["role"], get_model_folder(home, card["name"]))
    return [
        AuditVerdict("loss_is_a_number", not odd, f"{odd} steps without a finite loss"),
        AuditVerdict(
            "loss_fell",
            bool(fell or last <= low),
            f"{card['loss_first']} to {last}",
            f"a lower loss at the end or in the second half, or at most {low}",
        ),
        AuditVerdict("adapter_loads", problem is None, problem or "weights read"),
    ]


Row = dict[str, Any]


class NotTrained(LookupError):
    """A role of which no adapter was ever published."""


def set_rows(
    warehouse: Warehouse, split: str, tasks: Collection[str] | None = ONE_CALL
) -> list[Row]:
    """The current set's rows of a split, of `tasks` (None: all); by default of one call."""
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
    rows = warehouse.tables.read(make_adapter_table(role)).to_dicts()
    return read_model_card(warehouse.home, rows[0]["model"]) if rows else None


def read_last_summary(warehouse: Warehouse, role: str) -> Row | None:
    """The last evaluation of the last adapter, or of what serves where none was trained, against
    the untrained model; or None."""
    spec = RETRIEVER_EVALUATION if role == "retriever" else CALLER_EVALUATION
    rows = warehouse.tables.read(spec).to_dicts()
    last = warehouse.tables.read(make_adapter_table(role)).to_dicts()
    model = last[0]["model"] if last else find_model_in_service(warehouse.home, role).model
    if model == BASELINE or model not in {row["model"] for row in rows}:
        return None
    measure = summarise_recall if role == "retriever" else summarise_calls
    try:
        return measure(rows, model)
    except NothingToEvaluate:  # rows of an older version of the table
        return None
