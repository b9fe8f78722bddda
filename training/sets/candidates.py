"""Offers: which tools a prompt shows beside the right one, and the pool they come from.

    training_sets/<name>.pool.json   contract digest -> {server_id, tool, contract, split, twins}

An offer is a function of the row, the pool and the seed alone: the same everywhere, in every run.
A twin of a right tool (the same text, or marked as a twin) is never offered beside it, nor in an
item from which the right tool was taken away: a call to it would be right.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from training.prompts.word_index import Nearness, split_index_words
from training.sets.split import TRAIN
from warehouse.storage.files import write_atomically

Contract = Mapping[str, Any]
Entry = Mapping[str, Any]
RANDOM, HARD, MIXED = "random", "hard", "mixed"
DISTRACTORS = (RANDOM, HARD, MIXED)
_NEAREST = 512  # of other servers; more than an offer of 100 needs
_TELLING = 0.1  # a word that more of the tools hold says little about what a tool can do


class BadOffer(ValueError):
    """An offer that cannot be made: an unknown kind, or a right tool that the pool lacks."""


class Pool(Mapping[str, Contract]):
    """Contracts by digest, with what candidates are drawn by. Make it once for many rows.

    `entries` are those of `load_pool`, or bare contracts (then no server and no twin is known but
    by its text).
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._contracts = {name: _get_entry_contract(entries[name]) for name in sorted(entries)}
        self._entries = entries
        self._ranked: dict[str, list[str]] = {}

    def __getitem__(self, name: str) -> Contract:
        return self._contracts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contracts)

    def __len__(self) -> int:
        return len(self._contracts)

    def get_server(self, name: str) -> str:
        """The server of a contract, "" where the pool does not say."""
        entry = self._entries[name]
        return "" if "name" in entry else str(entry.get("server_id") or "")

    def get_twins(self, name: str) -> set[str]:
        """The contracts that are the same tool: by mark or by text, itself included."""
        entry = self._entries[name]
        marked = () if "name" in entry else entry.get("twins") or ()
        return {name, *marked, *self._same[self._texts[name]]}

    def rank_others(self, name: str) -> list[str]:
        """The others, neighbours of the same server first, the lexically nearest first in each."""
        if name not in self._ranked:
            own, found = self.get_server(name), self._near.rank_nearest(name)
            beside = (self._servers[found] == own) & (own != "")
            order = [*found[beside], *found[~beside][:_NEAREST]]
            self._ranked[name] = [other for at in order if (other := self.names[at]) != name]
        return self._ranked[name]

    def find_mentioned(self, text: str) -> set[str]:
        """The contracts that share a telling word with a text."""
        return self._near.find_sharing(split_index_words(text), most=_TELLING)

    @cached_property
    def names(self) -> list[str]:
        return list(self._contracts)

    @cached_property
    def _servers(self) -> np.ndarray:
        return np.array([self.get_server(name) for name in self.names])

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {name: tool_text(contract) for name, contract in self._contracts.items()}

    @cached_property
    def _same(self) -> dict[str, list[str]]:
        same: dict[str, list[str]] = {}
        for name, text in self._texts.items():
            same.setdefault(text, []).append(name)
        return same

    @cached_property
    def _near(self) -> Nearness:
        return Nearness(self._texts)


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
        chosen.add(_to_list(row.get("offered")), n)
        chosen.out |= made.find_mentioned(str(row.get("instruction") or ""))
    hard = {RANDOM: 0, HARD: n, MIXED: (n - len(chosen.names) + 1) // 2}[distractors]
    chosen.add(_iterate_hard_distractors(row, made, right), len(chosen.names) + hard)
    chosen.add(_draw_lazily(made.names, rng), n)
    order = sorted(chosen.names)
    rng.shuffle(order)
    return [made[name] for name in order]


def list_right_tools(row: Mapping[str, Any]) -> list[str]:
    """Contract digests of the right calls, each once, in order; [] where no call is right."""
    calls = row.get("calls")
    if calls is None:  # a row that says no more than its own tool
        return [row["contract_digest"]] if row.get("arguments") is not None else []
    return list(dict.fromkeys(call["contract_digest"] for call in _to_list(calls)))


def select_split_pool(pool: Mapping[str, Entry], split: str) -> Pool:
    """The contracts that a prompt of this split may show: a train prompt those of train tools
    alone, a test prompt all."""
    if split != TRAIN:
        return Pool(pool)
    return Pool({name: entry for name, entry in pool.items() if entry["split"] == TRAIN})


def get_pool_path(home: Path, training_set: str) -> Path:
    return home / "training_sets" / f"{training_set}.pool.json"


def save_pool(home: Path, training_set: str, pool: Mapping[str, Entry]) -> Path:
    """Keeps a training set's pool beside its manifest."""
    path = get_pool_path(home, training_set)
    body = {name: pool[name] for name in sorted(pool)}
    write_atomically(path, json.dumps(body, ensure_ascii=False).encode())
    return path


def load_pool(home: Path, training_set: str) -> dict[str, dict[str, Any]]:
    """Contract digest -> {server_id, tool, contract, split, twins}. Raises BadOffer."""
    path = get_pool_path(home, training_set)
    try:
        held = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadOffer(
            f"training set {training_set[:12] or '-'} has no pool ({path}): it was made by an older"
            " version; materialize training_set again"
        ) from None
    except ValueError as error:
        raise BadOffer(
            f"{path}: not a pool ({error}); remove the file and materialize training_set again"
        ) from None
    return held


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
                told = self.pool[name]["name"]
                if told not in self._taken:
                    self._taken.add(told)
                    self.names.append(name)


def _iterate_hard_distractors(
    row: Mapping[str, Any], pool: Pool, right: Sequence[str]
) -> Iterator[str]:
    yield from _to_list(row.get("negatives"))
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
    told = f"{row['pair_id']}|{distractors}|{seed}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(told).digest()[:8]))


def _to_list(held: Any) -> list[Any]:
    return (json.loads(held) if isinstance(held, str) else list(held or ())) or []


def _get_entry_contract(entry: Entry) -> Contract:
    return entry if "name" in entry else entry["contract"]
