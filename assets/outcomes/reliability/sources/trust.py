"""What each observation counts, before its age: by source, clock, contract and how many there are.

Nothing is taken out of the log: a source that is included again counts as it did.
"""

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from assets.outcomes.reliability.observation import EXECUTION
from assets.outcomes.reliability.policy import ReliabilityPolicy
from assets.outcomes.reliability.sources.frame import OBSERVED

_DAY = 86_400
_AHEAD = 300.0  # seconds that another machine's clock may go fast
KNOWN = {"tool_id": pl.String, "contract_digest": pl.String, "first_at": pl.Float64}


@dataclass(frozen=True)
class Weighed:
    """frame: rows of OBSERVED that count, `weight` as they do. left_out: why others count nothing,
    or less -> how many."""

    frame: pl.DataFrame
    left_out: dict[str, int]


def weigh_observations(
    frame: pl.DataFrame,
    known: pl.DataFrame,
    policy: ReliabilityPolicy,
    excluded: Collection[str],
    now: float,
) -> Weighed:
    """The observations of known contracts (rows of KNOWN; first_at: epoch seconds before which no
    call of it can have been made), in any order. now: epoch seconds.

    A call that is told of twice counts once. One from the future counts when its time has come; one
    from before its contract was first seen counts as made then.
    """
    left_out: dict[str, int] = {}

    def keep(name: str, kept: pl.DataFrame) -> pl.DataFrame:
        left_out[name] = frame.height - kept.height
        return kept

    frame = keep("of excluded sources", frame.filter(~pl.col("source").is_in(list(excluded))))
    frame = keep("told of twice", _drop_repeated(frame))
    frame = keep("from the future", frame.filter(pl.col("at") <= now + _AHEAD))
    keys = ["tool_id", "contract_digest"]
    frame = keep(
        "of an unknown contract",
        frame.join(known.unique(keys), on=keys, how="inner", maintain_order="left"),
    )
    early = pl.col("at") < pl.col("first_at")
    left_out["from before their contract"] = frame.filter(early).height
    frame = frame.with_columns(at=pl.max_horizontal("at", "first_at")).select(list(OBSERVED))
    limited = _limit_rate(_weigh_sources(frame, policy), policy)
    flooded = pl.col("weight") < pl.col("before")
    left_out["of a flood"] = limited.filter(flooded).height
    return Weighed(limited.select(list(OBSERVED)), left_out)


def _drop_repeated(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a call of a source; of rows that contradict each other the last, then the failure."""
    named = frame.filter(pl.col("call_id") != "")
    one = named.sort("at", ~pl.col("success"), "tool_id").unique(
        ["source", "call_id"], keep="last", maintain_order=True
    )
    return pl.concat([frame.filter(pl.col("call_id") == ""), one])


def _weigh_sources(frame: pl.DataFrame, policy: ReliabilityPolicy) -> pl.DataFrame:
    if not policy.weights:
        return frame
    factor = pl.col("source").replace_strict(policy.weights, default=1.0, return_dtype=pl.Float64)
    return frame.with_columns(weight=pl.col("weight") * factor)


def _limit_rate(frame: pl.DataFrame, policy: ReliabilityPolicy) -> pl.DataFrame:
    """A token's calls of a tool on one day share `per_day` among them where they would be more, and
    all its claims of the tool, whenever made, `claims_together`; `before`: what each counted before
    that."""
    day = (pl.col("at") / _DAY).floor()
    limited = frame.with_columns(before="weight")
    for held, most, group in (
        (pl.col("source") != EXECUTION, policy.per_day, ["source", "tool_id", day]),
        (pl.col("claimed"), policy.claims_together, ["source", "tool_id", "claimed"]),
    ):
        total = pl.max_horizontal(pl.col("weight").sum().over(group), 1e-12)
        shared = pl.col("weight") * pl.min_horizontal(1.0, most / total)
        limited = limited.with_columns(weight=pl.when(held).then(shared).otherwise("weight"))
    return limited
