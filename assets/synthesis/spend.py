"""Spend: what each stage cost, per marketplace and model, and per accepted pair.

What belongs here: the ledger's costs as rows. What does not: keeping the ledger.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from warehouse.tables import TableSpec

SPEND = TableSpec(
    name="spend",
    key=("marketplace", "stage", "model"),
    columns={
        "marketplace": pl.String,  # "_" for effects of no marketplace
        "stage": pl.String,
        "model": pl.String,
        "effects": pl.Int64,  # attempts that returned an answer
        "failed": pl.Int64,
        "unknown": pl.Int64,  # under way when their process died
        "prompt_tokens": pl.Int64,
        "completion_tokens": pl.Int64,
        "usd": pl.Float64,
        "accepted_pairs": pl.Int64,  # of the marketplace, now
        "usd_per_accepted_pair": pl.Float64,  # null without accepted pairs
    },
    # A night that looks at an unchanged world sends a few requests and publishes no new version.
    volatile=("effects", "failed", "unknown"),
)

_COUNT = {"done": "effects", "failed": "failed", "unknown": "unknown"}


def spend_rows(
    costs: Iterable[Mapping[str, Any]], accepted: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Rows of SPEND from `Ledger.costs()` and accepted pairs per marketplace."""
    found: dict[tuple[str, str, str], dict[str, Any]] = defaultdict(
        lambda: (
            dict.fromkeys(("effects", "failed", "unknown", "prompt_tokens", "completion_tokens"), 0)
            | {"usd": 0.0}
        )
    )
    for cost in costs:
        row = found[cost["partition"], cost["stage"], cost["model"]]
        if cost["status"] in _COUNT:
            row[_COUNT[cost["status"]]] += cost["effects"]
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            row[name] += cost[name]
    return [
        {
            "marketplace": marketplace,
            "stage": stage,
            "model": model,
            **row,
            "accepted_pairs": accepted.get(marketplace, 0),
            "usd_per_accepted_pair": (
                round(row["usd"] / accepted[marketplace], 9) if accepted.get(marketplace) else None
            ),
        }
        for (marketplace, stage, model), row in found.items()
    ]
