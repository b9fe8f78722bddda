"""The adapters' table: which model was trained last for each role, on what, and how it went."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl

from training.role import find_weights_flaw
from training.runtime.model_store import get_model_folder
from warehouse.audit import Verdict
from warehouse.storage.tables import TableSpec

# Nats a token. The tiny base has seen the pairs it is tuned on: it starts at 0.12 and wanders.
_LOW = 0.3
_COLUMNS = {
    "model": (pl.String, "the digest that names it, under <home>/models"),
    "role": (pl.String, "retriever, caller, or that of an extension"),
    "base": (pl.String, "the model that it was trained from"),
    "training_set": (pl.String, "digest of what it learnt from"),
    "pairs": (pl.Int64, "that it learnt from"),
    "steps": (pl.Int64, "updates of the weights"),
    "loss_first": (
        pl.Float64,
        "mean of the first tenth of the steps, of three at least where there are six",
    ),
    "loss_last": (pl.Float64, "the same of the last steps"),
    "device": (pl.String, "cpu, cuda"),
    "seconds": (pl.Float64, "that the training took"),
    "tokens_per_s": (pl.Float64, "tokens learnt a second"),
    "step_ms": (pl.Float64, "milliseconds a step, on average"),
    "peak_mb": (pl.Float64, "most memory that was in use: the GPU's on cuda, else the process's"),
}


def make_adapter_table(role: str) -> TableSpec:
    """The one-row table of a role's last trained adapter."""
    return TableSpec(
        name=f"{role}_adapter",
        key=("model",),
        columns=_COLUMNS,
        volatile=("device", "seconds", "tokens_per_s", "step_ms", "peak_mb"),
    )


def make_adapter_row(card: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a model's card."""
    return {"model": card["name"], **{name: card[name] for name in _COLUMNS if name != "model"}}


def make_adapter_metadata(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the run's page shows of a training: its loss, speed, memory, and what it noted."""
    names = ("pairs", "loss_first", "loss_last", "steps", "seconds", "tokens_per_s", "step_ms")
    more = ("peak_mb", "packing_efficiency", "resumed_from", "profile")
    known = {name: card[name] for name in (*names, *more) if card.get(name) is not None}
    notes = {"notes": "; ".join(card["notes"])} if card.get("notes") else {}
    return {**known, "losses": list(card.get("losses", [])), **notes}


def check_adapter_rules(home: Path, card: Mapping[str, Any]) -> list[Verdict]:
    """The audit: the loss is a number and fell, and the adapter can be read."""
    first, last = card["loss_first"], card["loss_last"]
    losses = [loss for loss in card["losses"] if not math.isfinite(loss)]
    problem = find_weights_flaw(card["role"], get_model_folder(home, card["name"]))
    return [
        Verdict("loss_is_a_number", not losses, f"{len(losses)} steps without a finite loss"),
        Verdict(
            "loss_fell",
            last < first or last <= _LOW or _is_half_lower(card["losses"]),
            f"{first} to {last}",
            f"a lower loss at the end or in the second half, or at most {_LOW}",
        ),
        Verdict("adapter_loads", problem is None, problem or "weights read"),
    ]


def _is_half_lower(losses: Sequence[float]) -> bool:
    """Whether the second half's mean is below the first half's. Each update learns from other rows:
    of a dozen updates the ends alone rose (1.78 to 1.84) where the halves fell (1.87 to 1.64)."""
    half = len(losses) // 2
    return half > 1 and mean(losses[half:]) < mean(losses[:half])
