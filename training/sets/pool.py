"""The contracts that prompts may show, with what candidates are drawn by.

training_sets/<name>.pool.json   contract digest -> {server_id, tool, contract, split, twins}
"""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from training.prompts.render import WordSimilarity, read_json_list, read_messages, split_index_words
from training.sets.split import TRAIN, Embed, SetPolicy, iterate_cosine_blocks
from warehouse.json_types import Contract
from warehouse.storage.files import write_atomically

Entry = Mapping[str, Any]
_NEAREST = 512  # of other servers; more than an offer of 100 needs
_TELLING = 0.1  # a word that more of the tools hold says little about what a tool can do


class BadOffer(ValueError):
    """An offer that cannot be made: an unknown kind, or a right tool that the pool lacks."""


class ToolPool(Mapping[str, Contract]):
    """Contracts by digest, with what candidates are drawn by; make it once. `entries`: of
    `load_pool`, or bare contracts, without server and known twins."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        entry_of = dict(sorted(entries.items()))
        self._contracts = {k: e if "name" in e else e["contract"] for k, e in entry_of.items()}
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
    def _near(self) -> WordSimilarity:
        return WordSimilarity(self._texts)


def select_split_pool(pool: Mapping[str, Entry], split: str) -> ToolPool:
    """Contracts that a split's prompts may show: for train those of train tools, else all."""
    if split != TRAIN:
        return ToolPool(pool)
    return ToolPool({name: entry for name, entry in pool.items() if entry["split"] == TRAIN})


def get_pool_path(home: Path, training_set: str) -> Path:
    return home / "training_sets" / f"{training_set}.pool.json"


def save_pool(home: Path, training_set: str, pool: Mapping[str, Entry]) -> Path:
    path = get_pool_path(home, training_set)
    body = {name: pool[name] for name in sorted(pool)}
    write_atomically(path, json.dumps(body, ensure_ascii=False).encode())
    return path


def load_pool(home: Path, training_set: str) -> dict[str, dict[str, Any]]:
    """Contract digest -> {server_id, tool, contract, split, twins}. Raises BadOffer."""
    path = get_pool_path(home, training_set)
    try:
        result = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadOffer(
            f"training set {training_set[:12] or '-'} has no pool ({path}): it was made by an older"
            " version; materialize training_set again"
        ) from None
    except ValueError as error:
        raise BadOffer(
            f"{path}: not a pool ({error}); remove the file and materialize training_set again"
        ) from None
    return result


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
    """`n` tools of distinct names in random order, or all of a smaller pool: a row's right tools,
    or with `gold=False` neither they nor twins. A row without a right call shows what it was
    `offered`, then tools unlike the request. `distractors`: "random"; "hard": confused tools, then
    neighbours, then near words; "mixed": half of each. Raises BadOffer."""
    if distractors not in DISTRACTORS:
        raise BadOffer(f"distractors {distractors!r}: expected one of {', '.join(DISTRACTORS)}")
    tools = pool if isinstance(pool, ToolPool) else ToolPool(pool)
    right = list_right_tools(row)
    lacking = next((name for name in right if name not in tools), None)
    if lacking is not None:
        raise BadOffer(
            f"pair {row.get('pair_id')}: the pool of {len(tools)} contracts lacks {lacking};"
            " expected the pool of the same training set and a split that may show it"
        )
    seed_text = f"{row['pair_id']}|{distractors}|{seed}".encode()
    rng = random.Random(int.from_bytes(hashlib.sha256(seed_text).digest()[:8]))
    chosen = _ChosenTools(tools, n, out={twin for name in right for twin in tools.get_twins(name)})
    if gold:
        chosen.keep_names(right)
    if not right:
        chosen.add(read_json_list(row.get("offered")), n)
        chosen.out |= tools.find_mentioned(str(row.get("instruction") or ""))
    hard = {RANDOM: 0, HARD: n, MIXED: (n - len(chosen.names) + 1) // 2}[distractors]
    chosen.add(_iterate_hard_distractors(row, tools, right), len(chosen.names) + hard)
    chosen.add(_draw_lazily(tools.names, rng), n)
    order = sorted(chosen.names)
    rng.shuffle(order)
    return [tools[name] for name in order]


def list_right_tools(row: Mapping[str, Any]) -> list[str]:
    """Digests of the right calls in order, or of the tool asked about; [] for no call."""
    calls = row.get("calls")
    if calls is None:  # a row that says no more than its own tool
        return [row["contract_digest"]] if row.get("arguments") is not None else []
    called = dict.fromkeys(call["contract_digest"] for call in read_json_list(calls))
    return list(called) or ([row["contract_digest"]] if read_messages(row) else [])


class _ChosenTools:
    """What an offer holds so far: no name twice, none of `out`."""

    def __init__(self, pool: ToolPool, n: int, out: set[str]) -> None:
        self.pool, self.n, self.out = pool, n, out
        self.names: list[str] = []
        self._taken: set[str] = set()

    def keep_names(self, names: Iterable[str]) -> None:
        for name in names:
            self.names.append(name)
            self._taken.add(self.pool[name]["name"])

    def add(self, names: Iterable[str], most: int) -> None:
        for name in names:
            if len(self.names) >= min(most, self.n):
                return
            if name in self.pool and name not in self.out:
                tool_name = self.pool[name]["name"]
                if tool_name not in self._taken:
                    self._taken.add(tool_name)
                    self.names.append(name)


def _iterate_hard_distractors(
    row: Mapping[str, Any], pool: ToolPool, right: Sequence[str]
) -> Iterator[str]:
    yield from read_json_list(row.get("negatives"))
    for name in right or [row["contract_digest"]]:
        if name in pool:
            yield from pool.rank_others(name)


def _draw_lazily(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """`names` in a random order, as far as it is read: Fisher-Yates from the end."""
    moved: dict[int, int] = {}
    for last in range(len(names) - 1, -1, -1):
        at = rng.randrange(last + 1)
        yield names[moved.get(at, at)]
        moved[at] = moved.get(last, last)


Entries = Mapping[str, dict[str, Any]]


def add_negatives(
    rows: Sequence[dict[str, Any]],
    pool: Entries,
    embed: Embed,
    policy: SetPolicy,
    hard: Mapping[str, Sequence[str]],
    marked: Collection[tuple[str, str]] = (),
) -> None:
    """Gives each row with a call up to so many contracts that it is confused with, then the nearest
    that its split may show, and each right tool in `pool` its `twins`, which are never negatives.
    `hard`: contract digest -> what is taken for it, worst first. One stands for all of its text."""
    texts = {name: tool_text(entry["contract"]) for name, entry in pool.items()}
    named: dict[str, list[str]] = defaultdict(list)
    for name, text in texts.items():
        named[text].append(name)
    twins: dict[str, set[str]] = defaultdict(set)
    for digest, other in marked:
        twins[digest].add(other)
        twins[other].add(digest)
    for learnt in (True, False):
        part = [row for row in rows if (row["split"] == TRAIN) == learnt]
        may = {name for name, entry in pool.items() if entry["split"] == TRAIN or not learnt}
        right = {row["pair_id"]: list_right_tools(row) for row in part}
        called = {name for of_row in right.values() for name in of_row}
        called |= {row["contract_digest"] for row in part if row["positive"] is not None}
        near = _NearTools({texts[name] for name in called}, named, may, embed, policy)
        for name in called:
            same = {*twins[name], *near.twins[texts[name]]}
            pool[name]["twins"] = sorted((same & pool.keys()) - {name})
        for row in part:
            if row["positive"] is None:
                continue
            contract_digest = row["contract_digest"]
            out = {contract_digest, *right[row["pair_id"]]}
            out |= {twin for name in out for twin in pool[name]["twins"]}
            worst = dict.fromkeys([*hard.get(contract_digest, ()), *near.others[row["positive"]]])
            fit: dict[str, str] = {}
            for name in worst:
                if name in may and name not in out:
                    fit.setdefault(texts[name], name)
            row["negatives"] = json.dumps(list(fit.values())[: policy.negatives])


class _NearTools:
    """For each text of `rows` its `twins` and the `others` that may be shown, nearest first."""

    def __init__(
        self,
        rows: Collection[str],
        named: Mapping[str, Sequence[str]],
        may: Collection[str],
        embed: Embed,
        policy: SetPolicy,
    ) -> None:
        self.twins: dict[str, list[str]] = {}
        self.others: dict[str, list[str]] = {}
        listed, columns = sorted(rows), sorted(named)
        first = [next((name for name in named[text] if name in may), None) for text in columns]
        free = np.array([name is not None for name in first])
        for start, cosines in (
            iterate_cosine_blocks(embed(listed), embed(columns)) if listed else ()
        ):
            for at, near in enumerate(cosines):
                text = listed[start + at]
                same = near > policy.twin_cosine
                alike = {text, *(columns[place] for place in np.flatnonzero(same))}
                self.twins[text] = [name for item in sorted(alike) for name in named[item]]
                order = np.argsort(-np.where(free & ~same, np.round(near, 5), -2.0), kind="stable")
                others = [first[p] for p in order[: policy.negatives] if free[p] and not same[p]]
                self.others[text] = [name for name in others if name is not None]
