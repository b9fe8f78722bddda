"""Shifts between what was trained on and what is there now: of tools, of searches, of verdicts.

Units are what came by itself: a server, a search, never the tools of one server each on its own. Of
each server one tool stands in a sample: ten tools of a new server are one server's way of writing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.drift.signal import (
    ACCEPT_RATE,
    EMBEDDINGS,
    QUERIES,
    Signal,
    make_unmeasured,
)
from training.drift.two_sample import compare_shares, measure_mmd
from warehouse.json_types import Row
from warehouse.storage.digest import sha256

LEAST = 8  # units a side: with fewer no relabelling is rare enough
Read = Callable[[Sequence[str]], np.ndarray]  # names of texts -> unit vectors [n, dim]


@dataclass(frozen=True)
class Member:
    """A tool as it was at one time."""

    server_id: str
    contract_digest: str
    text_digest: str


def measure_embedding_shift(
    then: Mapping[str, Member],
    now: Mapping[str, Member],
    read: Read,
    threshold: float,
    *,
    most: int = 500,
    permutations: int = 500,
) -> Signal:
    """Whether tools that are new or changed read unlike those of the other servers as they were
    trained on. then, now: tool id -> Member. `most` servers a side are compared."""
    before, after = choose_tools(then, now, most)
    if min(len(before), len(after)) < LEAST:
        why = (
            f"{len(after)} servers have new or changed tools and {len(before)} have not: {LEAST} of"
            " each are needed"
        )
        return make_unmeasured(EMBEDDINGS, threshold, why)
    found = measure_mmd(read(before), read(after), permutations)
    why = (
        f"tools of {len(after)} servers that are new or changed beside those of {len(before)}"
        " others, one a server"
    )
    n = len(before) + len(after)
    return Signal(EMBEDDINGS, found.value, n, threshold, why, p_value=found.p_value)


def choose_tools(
    then: Mapping[str, Member], now: Mapping[str, Member], most: int
) -> tuple[list[str], list[str]]:
    """Text digests, one a server: (of servers that stayed, as trained on; of what came)."""
    came = {
        tool: one
        for tool, one in now.items()
        if tool not in then or then[tool].contract_digest != one.contract_digest
    }
    moved = {one.server_id for one in came.values()}
    stayed = {tool: one for tool, one in then.items() if one.server_id not in moved}
    return _choose_each(stayed, most), _choose_each(came, most)


def _choose_each(tools: Mapping[str, Member], most: int) -> list[str]:
    """By the hashes of ids: the same tools in every run, whatever else comes or goes."""
    chosen: dict[str, str] = {}
    for tool in sorted(tools, key=_hash_name, reverse=True):
        chosen[tools[tool].server_id] = tools[tool].text_digest
    return [chosen[server] for server in sorted(chosen, key=_hash_name)[:most]]


def measure_query_shift(
    before: np.ndarray,
    after: np.ndarray,
    threshold: float,
    *,
    permutations: int = 500,
) -> Signal:
    """Whether what is searched for is another since the training. Vectors of distinct searches."""
    if min(len(before), len(after)) < LEAST:
        why = (
            f"{len(before)} distinct searches before the training and {len(after)} since are kept"
            f" (of tokens that opted in): {LEAST} of each are needed"
        )
        return make_unmeasured(QUERIES, threshold, why)
    found = measure_mmd(before, after, permutations)
    n = len(before) + len(after)
    why = f"{len(after)} distinct searches since the training beside {len(before)} before it"
    return Signal(QUERIES, found.value, n, threshold, why, p_value=found.p_value)


def measure_accept_shift(
    then: Collection[str], judged: Iterable[Row], threshold: float, *, permutations: int = 500
) -> Signal:
    """Whether pairs that were judged since are accepted less or more often. then: ids of pairs that
    were judged before the training. judged: rows of JUDGEMENTS, of both times, each pair once."""
    sides: tuple[dict[str, list[int]], ...] = ({}, {})
    for row in judged:
        if row["verdict"] in ("accept", "reject"):
            counts = sides[row["pair_id"] not in then].setdefault(row["server_id"], [0, 0])
            counts[0] += row["verdict"] == "accept"
            counts[1] += 1
    before, after = ([(hits, n) for hits, n in side.values()] for side in sides)
    if min(len(before), len(after)) < LEAST:
        why = (
            f"pairs of {len(after)} servers were judged since the training and of {len(before)}"
            f" before it: {LEAST} of each are needed"
        )
        return make_unmeasured(ACCEPT_RATE, threshold, why)
    found = compare_shares(before, after, permutations)
    rates = [sum(hits for hits, _ in side) / sum(n for _, n in side) for side in (before, after)]
    why = (
        f"{rates[1]:.1%} of {sum(n for _, n in after):,} pairs that were judged since are accepted,"
        f" {rates[0]:.1%} of {sum(n for _, n in before):,} before"
    )
    return Signal(
        ACCEPT_RATE, abs(found.value), len(before) + len(after), threshold, why,
        *_fold_interval(found.low, found.high), found.p_value,
    )  # fmt: skip


def _fold_interval(low: float | None, high: float | None) -> tuple[float, float]:
    """The interval of a difference's size."""
    ends = sorted((abs(low or 0.0), abs(high or 0.0)))
    return (0.0 if (low or 0.0) <= 0 <= (high or 0.0) else ends[0]), ends[1]


def _hash_name(name: str) -> str:
    return sha256(name.encode())
