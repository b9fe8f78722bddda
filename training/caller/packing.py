"""Which rows share an update, and which of them share a pass through the model.

An update always takes the same rows, packed or not, on one process or on eight: packing and the
number of processes change the speed and the rounding, never what is learned.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """The passes of a whole training in order, `per_update` of them in each update.

    A pass lists rows by number; an empty one keeps the processes in step and teaches nothing.
    """

    passes: list[list[int]]
    per_update: int

    @property
    def updates(self) -> int:
        return len(self.passes) // self.per_update

    def get_update_rows(self, update: int) -> list[int]:
        """The rows of an update, counted from 1."""
        first = (update - 1) * self.per_update
        return [row for part in self.passes[first : first + self.per_update] for row in part]


def plan_passes(
    lengths: Sequence[int],
    *,
    per_update: int,
    epochs: int,
    seed: int,
    pass_tokens: int | None,
    pass_rows: int,
    processes: int = 1,
) -> Plan:
    """The passes over rows of these lengths, shuffled anew in every epoch.

    `pass_tokens`: rows are packed into passes of at most so many tokens (a longer row has a pass of
    its own); None: up to `pass_rows` rows of like length are padded to the longest.
    """
    groups = _shuffle_updates(len(lengths), per_update, epochs, seed)
    if pass_tokens is None:
        parts = [_group_by_length(group, lengths, pass_rows) for group in groups]
    else:
        parts = [_pack_first_fit(group, lengths, pass_tokens) for group in groups]
    most = max(len(part) for part in parts)
    width = -(-most // processes) * processes
    passes: list[list[int]] = []
    for group, part in zip(groups, parts, strict=True):
        if pass_tokens is not None and len(part) < width:
            even = balance_rows(group, lengths, width)
            if max(sum(lengths[row] for row in each) for each in even) <= pass_tokens:
                part = even
        passes += part + [[] for _ in range(width - len(part))]
    return Plan(passes, width)


def balance_rows(rows: Sequence[int], lengths: Sequence[int], parts: int) -> list[list[int]]:
    """`rows` in at most `parts` groups of nearly equal length: the longest first, each to the
    group that is shortest so far."""
    heap: list[tuple[int, int]] = [(0, at) for at in range(parts)]
    made: list[list[int]] = [[] for _ in range(parts)]
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        held, at = heapq.heappop(heap)
        made[at].append(row)
        heapq.heappush(heap, (held + lengths[row], at))
    return [part for part in made if part]


def compute_efficiency(made: Plan, lengths: Sequence[int], *, padded: bool) -> float:
    """Share of the tokens that go through the model which belong to a row (the rest is padding)."""
    real = fed = 0
    for part in made.passes:
        held = [lengths[row] for row in part]
        real += sum(held)
        fed += (max(held) * len(held) if padded else sum(held)) if held else 1
    return real / fed if fed else 0.0


def _shuffle_updates(rows: int, per_update: int, epochs: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    made = []
    for _ in range(epochs):
        order = rng.sample(range(rows), rows)
        made += [order[at : at + per_update] for at in range(0, rows, per_update)]
    return made


def _pack_first_fit(rows: Sequence[int], lengths: Sequence[int], limit: int) -> list[list[int]]:
    """First fit, the longest first: within 11/9 of the fewest passes there can be."""
    made: list[list[int]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        at = next((i for i, free in enumerate(room) if free >= lengths[row]), None)
        if at is None:
            made.append([row])
            room.append(limit - lengths[row])
        else:
            made[at].append(row)
            room[at] -= lengths[row]
    return made


def _group_by_length(rows: Sequence[int], lengths: Sequence[int], width: int) -> list[list[int]]:
    order = sorted(rows, key=lambda row: (lengths[row], row))
    return [order[at : at + width] for at in range(0, len(order), width)]
