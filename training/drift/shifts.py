"""Shifts between what was trained on and what is there now: of tools, of searches, of verdicts.

Units are what came by itself: a server, a search, never the tools of one server each on its own. Of
each server one tool stands in a sample: ten tools of a new server are one server's way of writing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from training.drift.decide import ACCEPT_RATE, EMBEDDINGS, QUERIES, DriftSignal, make_unmeasured
from warehouse.json_types import Row
from warehouse.storage.digest import sha256

_Z = 1.959964  # 95%


@dataclass(frozen=True)
class ShiftDifference:
    """A statistic with its p-value and, where it has one, its 95% interval."""

    value: float
    p_value: float
    low: float | None = None
    high: float | None = None


def measure_mmd(
    before: np.ndarray, after: np.ndarray, permutations: int = 500, seed: int = 0
) -> ShiftDifference:
    """The unbiased squared maximum mean discrepancy of two samples of vectors, [n, dim] and
    [m, dim], under a Gaussian kernel as wide as their median distance (Gretton et al. 2012,
    JMLR 13), and the share of relabelled samples that differ as much.

    Takes a millisecond a permutation at n = m = 500. Raises ValueError below two vectors a side.
    """
    n, m = len(before), len(after)
    if min(n, m) < 2:
        raise ValueError(f"MMD of {n} and {m} vectors: each side needs two")
    kernel = _compute_kernel(np.concatenate([before, after]))
    rng = np.random.default_rng(seed)
    labels = np.zeros((permutations + 1, n + m))
    labels[:, :n] = 1.0
    labels[1:] = rng.permuted(labels[1:], axis=1)  # the first row are the samples as they are
    within = labels @ kernel
    one = np.einsum("ij,ij->i", within, labels)
    cross = within.sum(axis=1) - one
    other = kernel.sum() - one - 2 * cross
    found = one / (n * (n - 1)) + other / (m * (m - 1)) - 2 * cross / (n * m)
    return ShiftDifference(float(found[0]), _compute_p_value(found[1:], found[0]))


def compare_shares(
    before: Sequence[tuple[int, int]],
    after: Sequence[tuple[int, int]],
    permutations: int = 500,
    seed: int = 0,
) -> ShiftDifference:
    """The share after less the share before, of clusters as (hits, n): what one server's pairs came
    to is no evidence of many. p by relabelling whole clusters, two-sided; the interval is that of a
    ratio of sums over clusters. Raises ValueError where a side holds nothing."""
    counts = np.array([*before, *after], dtype=float).reshape(-1, 2)
    first = len(before)
    if not counts[:first, 1].sum() or not counts[first:, 1].sum():
        raise ValueError("shares of nothing: each side needs a cluster that holds something")
    labels = np.zeros((permutations + 1, len(counts)), dtype=bool)
    labels[:, :first] = True
    labels[1:] = np.random.default_rng(seed).permuted(labels[1:], axis=1)
    sums, total = labels @ counts, counts.sum(axis=0)
    rest = total - sums
    whole = (sums[:, 1] > 0) & (rest[:, 1] > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(whole, rest[:, 0] / rest[:, 1] - sums[:, 0] / sums[:, 1], 0.0)
    value = float(found[0])
    variance = sum(_estimate_variance(side) for side in (counts[:first], counts[first:]))
    spread = _Z * float(np.sqrt(variance))
    p = _compute_p_value(np.abs(found[1:]), abs(value))
    return ShiftDifference(value, p, max(-1.0, value - spread), min(1.0, value + spread))


def compare_hits(before: Sequence[bool], after: Sequence[bool]) -> ShiftDifference:
    """The share of items that were hit before and are not now, less those that are hit anew. p:
    exact McNemar, one-sided (that more are lost than found). Raises ValueError without items."""
    if not before or len(before) != len(after):
        raise ValueError(f"{len(before)} items before and {len(after)} after: expected the same")
    moves = np.array(before, dtype=int) - np.array(after, dtype=int)
    n, lost, won = len(moves), int((moves > 0).sum()), int((moves < 0).sum())
    value = (lost - won) / n
    both = lost + won
    p = sum(comb(both, k) for k in range(lost, both + 1)) / 2**both if both else 1.0
    spread = _Z * float(np.sqrt(max(both / n - value * value, 0.0) / n))
    return ShiftDifference(value, p, max(-1.0, value - spread), min(1.0, value + spread))


def _compute_kernel(vectors: np.ndarray) -> np.ndarray:
    """[n, n] with an empty diagonal: a vector beside itself says nothing of its sample."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    apart = np.maximum(squares[:, None] + squares[None, :] - 2 * vectors @ vectors.T, 0.0)
    pairs = apart[np.triu_indices(len(vectors), 1)]
    width = float(np.median(pairs)) or 1.0
    kernel = np.exp(-apart / width)
    np.fill_diagonal(kernel, 0.0)
    return kernel


def _compute_p_value(drawn: np.ndarray, found: float) -> float:
    """The share of draws that reach what was found, which counts as one of them (Phipson and Smyth
    2010): never 0."""
    return float((1 + int((drawn >= found - 1e-12).sum())) / (1 + len(drawn)))


def _estimate_variance(counts: np.ndarray) -> float:
    """The variance of hits / n over clusters; 0 for one cluster, which says nothing of it."""
    clusters, total = len(counts), counts[:, 1].sum()
    if clusters < 2:
        return 0.0
    apart = counts[:, 0] - counts[:, 0].sum() / total * counts[:, 1]
    return float(clusters / (clusters - 1) * (apart**2).sum() / total**2)


LEAST = 8  # units a side: with fewer no relabelling is rare enough
Read = Callable[[Sequence[str]], np.ndarray]  # names of texts -> unit vectors [n, dim]


@dataclass(frozen=True)
class SampleMember:
    """A tool as it was at one time."""

    server_id: str
    contract_digest: str
    text_digest: str


def measure_embedding_shift(
    then: Mapping[str, SampleMember],
    now: Mapping[str, SampleMember],
    read: Read,
    threshold: float,
    *,
    most: int = 500,
    permutations: int = 500,
) -> DriftSignal:
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
    return DriftSignal(EMBEDDINGS, found.value, n, threshold, why, p_value=found.p_value)


def choose_tools(
    then: Mapping[str, SampleMember], now: Mapping[str, SampleMember], most: int
) -> tuple[list[str], list[str]]:
    """Text digests, one a server: (of servers that stayed, as trained on; of what came)."""
    came = {
        tool: one
        for tool, one in now.items()
        if tool not in then or then[tool].contract_digest != one.contract_digest
    }
    moved = {item.server_id for item in came.values()}
    stayed = {tool: one for tool, one in then.items() if one.server_id not in moved}
    return _choose_each(stayed, most), _choose_each(came, most)


def _choose_each(tools: Mapping[str, SampleMember], most: int) -> list[str]:
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
) -> DriftSignal:
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
    return DriftSignal(QUERIES, found.value, n, threshold, why, p_value=found.p_value)


def measure_accept_shift(
    then: Collection[str], judged: Iterable[Row], threshold: float, *, permutations: int = 500
) -> DriftSignal:
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
    return DriftSignal(
        ACCEPT_RATE, abs(found.value), len(before) + len(after), threshold, why,
        *_fold_interval(found.low, found.high), found.p_value,
    )  # fmt: skip


def _fold_interval(low: float | None, high: float | None) -> tuple[float, float]:
    """The interval of a difference's size."""
    ends = sorted((abs(low or 0.0), abs(high or 0.0)))
    return (0.0 if (low or 0.0) <= 0 <= (high or 0.0) else ends[0]), ends[1]


def _hash_name(name: str) -> str:
    return sha256(name.encode())
