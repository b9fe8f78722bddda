"""Hard negatives and twins of the tools that a set has pairs of."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from training.sets.candidates import list_right_tools
from training.sets.near import Embed, iterate_cosine_blocks
from training.sets.policy import SetPolicy
from training.sets.split import TRAIN

Entries = Mapping[str, dict[str, Any]]


def add_negatives(
    rows: Sequence[dict[str, Any]],
    pool: Entries,
    embed: Embed,
    policy: SetPolicy,
    hard: Mapping[str, Sequence[str]],
    marked: Collection[tuple[str, str]] = (),
) -> None:
    """Gives each row with a call the contracts that it is confused with, then the nearest, among
    those that its split may show; and each right tool in `pool` its `twins`. Neither these nor what
    else the row calls are its negatives.

    `hard`: contract digest -> digests of what is taken for it, the worst first. One negative stands
    for all contracts of its text.
    """
    texts = {name: tool_text(entry["contract"]) for name, entry in pool.items()}
    named: dict[str, list[str]] = defaultdict(list)
    for name, text in texts.items():
        named[text].append(name)
    twins: dict[str, set[str]] = defaultdict(set)
    for one, other in marked:
        twins[one].add(other)
        twins[other].add(one)
    for learnt in (True, False):
        part = [row for row in rows if (row["split"] == TRAIN) == learnt]
        may = {name for name, entry in pool.items() if entry["split"] == TRAIN or not learnt}
        right = {row["pair_id"]: list_right_tools(row) for row in part}
        called = {name for of_row in right.values() for name in of_row}
        called |= {row["contract_digest"] for row in part if row["positive"] is not None}
        near = _Near({texts[name] for name in called}, named, may, embed, policy)
        for name in called:
            same = {*twins[name], *near.twins[texts[name]]}
            pool[name]["twins"] = sorted((same & pool.keys()) - {name})
        for row in part:
            if row["positive"] is None:
                continue
            own = row["contract_digest"]
            out = {own, *right[row["pair_id"]]}
            out |= {twin for name in out for twin in pool[name]["twins"]}
            worst = dict.fromkeys([*hard.get(own, ()), *near.others[row["positive"]]])
            fit: dict[str, str] = {}
            for name in worst:
                if name in may and name not in out:
                    fit.setdefault(texts[name], name)
            row["negatives"] = json.dumps(list(fit.values())[: policy.negatives])


class _Near:
    """For each text of `rows` its `twins` (digests of any side) and `others` (digests that may be
    shown, the nearest first)."""

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
                self.twins[text] = [name for one in sorted(alike) for name in named[one]]
                order = np.argsort(-np.where(free & ~same, np.round(near, 5), -2.0), kind="stable")
                others = [first[p] for p in order[: policy.negatives] if free[p] and not same[p]]
                self.others[text] = [name for name in others if name is not None]
