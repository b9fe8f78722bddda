"""Decay of the models that serve: the items on which each was last measured, held against what is
there now. A frozen set: no item is added, so that the same question is asked each time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from training.drift.signal import CALLER_DECAY, RETRIEVER_DECAY, Signal, make_unmeasured
from training.drift.two_sample import compare_hits
from warehouse.json_types import Row
from warehouse.statistics import wilson_interval
from warehouse.storage.digest import sha256

FOUND_WITHIN = 5  # what `find_tools` shows
Rank = Callable[[Sequence[Row]], Mapping[str, int]]  # rows to ask -> rank by pair


def measure_retriever_decay(
    frozen: Iterable[Row], rank: Rank, current: Mapping[tuple[str, str], str], threshold: float,
    most: int = 200,
) -> Signal:  # fmt: skip
    """The share of frozen items whose right tool was among the first five and is not now, less
    those that came in. An item whose tool is gone is in no share: no training brings it back.

    frozen: rows of RETRIEVER_EVALUATION of one model, with their `instruction`. rank: the rank now
    of each item's `positive` among all current tools. current: (server, tool) -> its text now.
    """
    chosen = sorted(frozen, key=lambda row: sha256(row["pair_id"].encode()))[:most]
    asked = [
        {**row, "positive": current[key]}
        for row in chosen
        if (key := (row["server_id"], row["tool"])) in current
    ]
    if not asked:
        why = "none of the items that it was measured on has a tool that is still there"
        return make_unmeasured(RETRIEVER_DECAY, threshold, why if chosen else _NEVER)
    ranks = rank(asked)
    before = [row["rank"] <= FOUND_WITHIN for row in asked]
    after = [ranks[row["pair_id"]] <= FOUND_WITHIN for row in asked]
    found = compare_hits(before, after)
    why = (
        f"of {len(chosen)} frozen items {len(chosen) - len(asked)} lost their tool;"
        f" {sum(before)} of the others were among the first {FOUND_WITHIN}, {sum(after)} are now"
    )
    return Signal(
        RETRIEVER_DECAY, found.value, len(asked), threshold, why,
        found.low, found.high, found.p_value,
    )  # fmt: skip


def measure_caller_decay(
    right: Iterable[Row], fits: Callable[[Row, Mapping[str, Any]], bool], threshold: float
) -> Signal:
    """The share of calls that were right and fit no contract now. right: rows of CALLER_EVALUATION
    of one model that answered rightly, each with its `calls` read as a list. fits: whether a call
    of a row still does."""
    listed = list(right)
    if not listed:
        return make_unmeasured(CALLER_DECAY, threshold, "no call of its evaluation was right")
    lost = sum(not all(fits(row, call) for call in row["calls"]) for row in listed)
    low, high = wilson_interval(lost, len(listed))
    why = f"of {len(listed)} calls that it got right {lost} fit no current contract"
    return Signal(CALLER_DECAY, lost / len(listed), len(listed), threshold, why, low, high)


_NEVER = "it was never measured"
