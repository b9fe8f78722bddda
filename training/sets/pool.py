"""The contracts that prompts may show, with what candidates are drawn by.

training_sets/<name>.pool.json   contract digest -> {server_id, tool, contract, split, twins}
"""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from training.prompts.word_index import Nearness, split_index_words
from training.sets.split import TRAIN
from warehouse.json_types import Contract
from warehouse.storage.files import write_atomically

Entry = Mapping[str, Any]
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


def _get_entry_contract(entry: Entry) -> Contract:
    return entry if "name" in entry else entry["contract"]
