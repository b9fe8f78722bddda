"""Spend: what each stage cost, per marketplace and model, and per accepted pair.

A stage is a role of the language model (`generator`, `judge` …) or another paid step. The same
request is paid once for all marketplaces, and some is paid for none of them (`_`): a marketplace's
total carries its share of that, by its accepted pairs; the row `all` is exact.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import polars as pl

from assets.columns import COMPLETION_TOKENS, PROMPT_TOKENS, USD
from warehouse.audit import Verdict
from warehouse.json_types import JsonObject, Record
from warehouse.storage.tables import TableSpec

ALL, TOTAL, SHARED = "all", "total", "_"

SPEND = TableSpec(
    name="spend",
    key=("marketplace", "stage", "model"),
    columns={
        "marketplace": (pl.String, '"_" for effects of no marketplace, "all" for the sum'),
        "stage": (pl.String, 'a role, another paid step, or "total"'),
        "model": (pl.String, '"" in a total'),
        "calls": (pl.Int64, "attempts that returned an answer"),
        "failed": (pl.Int64, "attempts that failed"),
        "unknown": (pl.Int64, "under way when their process died"),
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "tokens": (pl.Int64, "prompt and completion together"),
        "usd": USD,
        "shared_usd": (pl.Float64, "of a total: its share of what no marketplace paid alone"),
        "accepted_pairs": (pl.Int64, 'of the marketplace, now; of "all": each pair once'),
        "usd_per_accepted_pair": (pl.Float64, "null without accepted pairs"),
        "tokens_per_accepted_pair": (pl.Float64, "null without accepted pairs"),
    },
    # A run that looks at an unchanged world sends a few requests and publishes no new version.
    volatile=("calls", "failed", "unknown"),
    schema_version=2,
)

_COUNT = {"done": "calls", "failed": "failed", "unknown": "unknown"}
_SUMMED = ("calls", "failed", "unknown", "prompt_tokens", "completion_tokens", "usd")
_TRIFLE = 0.001  # US dollars: below it a pair is all but free, and ratios say nothing


def make_spend_rows(
    costs: Iterable[JsonObject], accepted: Mapping[str, int], distinct: int | None = None
) -> list[Record]:
    """Rows of SPEND from `Ledger.costs()` and the accepted pairs per marketplace, with a total for
    each marketplace and one for all. distinct: accepted pairs, each once, where some are in
    several marketplaces."""
    found: dict[tuple[str, str, str], Record] = defaultdict(_make_zeros)
    for cost in costs:
        row = found[cost["partition"], cost["stage"].removeprefix("llm:"), cost["model"]]
        if cost["status"] in _COUNT:
            row[_COUNT[cost["status"]]] += cost["effects"]
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            row[name] += cost[name]
    sums: dict[str, Record] = defaultdict(_make_zeros)
    for (marketplace, _, _), row in found.items():
        for name in _SUMMED:
            sums[marketplace][name] += row[name]
            sums[ALL][name] += row[name]
    whole = sum(accepted.values())
    once = whole if distinct is None else distinct
    rows = [_make_row(*key, row, accepted.get(key[0], 0)) for key, row in found.items()]
    for marketplace in sorted((sums.keys() | accepted.keys()) - {ALL, SHARED}):
        pairs = accepted.get(marketplace, 0)
        shared = sums[SHARED]["usd"] * pairs / whole if whole else 0.0
        rows.append(_make_row(marketplace, TOTAL, "", sums[marketplace], pairs, shared))
    return [*rows, _make_row(ALL, TOTAL, "", sums[ALL], once)]


def count_accepted_pairs(judgements: pl.DataFrame) -> tuple[dict[str, int], int]:
    """(accepted pairs per marketplace, accepted pairs each once) of rows of JUDGEMENTS."""
    frame = judgements.filter(pl.col("verdict") == "accept")
    counts = frame.group_by("marketplace").len().sort("marketplace")
    return dict(counts.iter_rows()), frame["pair_id"].n_unique()


def audit_cost(rows: Iterable[Record], previous: Iterable[Record], *, most: float = 3.0) -> Verdict:
    """The audit's question: does an accepted pair cost at most `most` times what it did in the
    version before? Passes where either of them has no accepted pair or is all but free."""
    now, before = _find_overall(rows), _find_overall(previous)
    if now is None or before is None:
        observed = (
            "no accepted pair yet" if now is None else f"{now:.6f} USD; nothing to compare with"
        )
        return Verdict("cost_per_accepted_pair", True, observed)
    limit = most * max(before, _TRIFLE)
    observed = f"{now:.6f} USD, {before:.6f} before"
    return Verdict("cost_per_accepted_pair", now <= limit, observed, f"at most {limit:.6f} USD")


def _find_overall(rows: Iterable[Record]) -> float | None:
    found = [row for row in rows if (row["marketplace"], row["stage"]) == (ALL, TOTAL)]
    return found[0]["usd_per_accepted_pair"] if found else None


def _make_zeros() -> Record:
    return dict.fromkeys(_SUMMED, 0) | {"usd": 0.0}


def _make_row(
    marketplace: str,
    stage: str,
    model: str,
    sums: Record,
    accepted: int,
    shared: float | None = None,
) -> Record:
    tokens, usd = sums["prompt_tokens"] + sums["completion_tokens"], sums["usd"] + (shared or 0.0)
    return {
        "marketplace": marketplace,
        "stage": stage,
        "model": model,
        **sums,
        "usd": round(sums["usd"], 9),
        "tokens": tokens,
        "shared_usd": None if shared is None else round(shared, 9),
        "accepted_pairs": accepted,
        "usd_per_accepted_pair": round(usd / accepted, 9) if accepted else None,
        "tokens_per_accepted_pair": round(tokens / accepted, 3) if accepted else None,
    }
