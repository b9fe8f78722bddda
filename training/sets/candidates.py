"""Offers: which tools a prompt shows beside the right one.

An offer is a function of the row, the pool and the seed alone: the same everywhere, in every run.
A twin of a right tool (the same text, or marked as a twin) is never offered beside it, nor in an
item from which the right tool was taken away: a call to it would be right.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from training.prompts.rows import read_json_list, read_messages
from training.sets.pool import BadOffer, Contract, Pool

RANDOM, HARD, MIXED = "random", "hard", "mixed"
DISTRACTORS = (RANDOM, HARD, MIXED)


def draw_candidates(
    row: Mapping[str, Any],
    pool: Mapping[str, Any],
    n: int,
    *,
    distractors: str = MIXED,
    seed: int = 0,
    gold: bool = True,
) -> list[Contract]:
    """`n` tools with names of their own, in an order of their own; fewer where the pool is smaller.

    The row's right tools are among them (all of a parallel row's, should they be more than `n`);
    with `gold=False` none of them is, nor a twin of one: no call is right. A row of which no call
    is right anyway shows the tools it was `offered`, then tools that share no telling word with the
    request. `distractors`: "random"; "hard": those it is confused with, then neighbours of the same
    server, then the nearest in words; "mixed": half of each, the odd one hard.
    Raises BadOffer.
    """
    if distractors not in DISTRACTORS:
        raise BadOffer(f"distractors {distractors!r}: expected one of {', '.join(DISTRACTORS)}")
    made = pool if isinstance(pool, Pool) else Pool(pool)
    right = list_right_tools(row)
    lacking = next((name for name in right if name not in made), None)
    if lacking is not None:
        raise BadOffer(
            f"pair {row.get('pair_id')}: the pool of {len(made)} contracts lacks {lacking};"
            " expected the pool of the same training set and a split that may show it"
        )
    rng = _make_random(row, seed, distractors)
    chosen = _Chosen(made, n, out={twin for name in right for twin in made.get_twins(name)})
    if gold:
        chosen.keep_names(right)
    if not right:
        chosen.add(read_json_list(row.get("offered")), n)
        chosen.out |= made.find_mentioned(str(row.get("instruction") or ""))
    hard = {RANDOM: 0, HARD: n, MIXED: (n - len(chosen.names) + 1) // 2}[distractors]
    chosen.add(_iterate_hard_distractors(row, made, right), len(chosen.names) + hard)
    chosen.add(_draw_lazily(made.names, rng), n)
    order = sorted(chosen.names)
    rng.shuffle(order)
    return [made[name] for name in order]


def list_right_tools(row: Mapping[str, Any]) -> list[str]:
    """Contract digests of the right calls, each once, in order, or of the tool that is asked about;
    [] where no call is right."""
    calls = row.get("calls")
    if calls is None:  # a row that says no more than its own tool
        return [row["contract_digest"]] if row.get("arguments") is not None else []
    called = dict.fromkeys(call["contract_digest"] for call in read_json_list(calls))
    return list(called) or ([row["contract_digest"]] if read_messages(row) else [])


class _Chosen:
    """What an offer holds so far: no name twice, none of `out`."""

    def __init__(self, pool: Pool, n: int, out: set[str]) -> None:
        self.pool, self.n, self.out = pool, n, out
        self.names: list[str] = []
        self._taken: set[str] = set()

    def keep_names(self, names: Iterable[str]) -> None:
        for name in names:
            self.names.append(name)
            self._taken.add(self.pool[name]["name"])

    def add(self, names: Iterable[str], most: int) -> None:
        """Takes names in their order until there are `most`."""
        for name in names:
            if len(self.names) >= min(most, self.n):
                return
            if name in self.pool and name not in self.out:
                tool_name = self.pool[name]["name"]
                if tool_name not in self._taken:
                    self._taken.add(tool_name)
                    self.names.append(name)


def _iterate_hard_distractors(
    row: Mapping[str, Any], pool: Pool, right: Sequence[str]
) -> Iterator[str]:
    yield from read_json_list(row.get("negatives"))
    own = right or [row["contract_digest"]]
    for name in own:
        if name in pool:
            yield from pool.rank_others(name)


def _draw_lazily(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """`names` in a random order, as far as it is read: Fisher-Yates from the end."""
    moved: dict[int, int] = {}
    for last in range(len(names) - 1, -1, -1):
        at = rng.randrange(last + 1)
        yield names[moved.get(at, at)]
        moved[at] = moved.get(last, last)


def _make_random(row: Mapping[str, Any], seed: int, distractors: str) -> random.Random:
    seed_text = f"{row['pair_id']}|{distractors}|{seed}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(seed_text).digest()[:8]))
