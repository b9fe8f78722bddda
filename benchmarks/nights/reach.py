"""How far a day's change reaches: what a full run takes for the rows that it concerns.

The prompts about one tool show its partners and look-alikes too, so that a changed contract is in
those of more rows than its own: a row is written and judged anew where a contract that it is about,
or offers, is another, and checked anew where any of its look-alikes is.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.synthesis.tables import PAIRS, PASSING, reaches_judge, read_goldens
from assets.synthesis.writing.single_call import STEP as CHECK
from warehouse.store import Warehouse

Key = tuple[str, str, str, str, int]  # marketplace, server, tool, task, index


@dataclass(frozen=True)
class Shown:
    """A row of PAIRS. about, shown: digests of the contracts that it is about or offers, and of all
    that its prompts show. written, checked: calls of a model that a full run takes for it, the
    judge's among the first."""

    about: frozenset[str]
    shown: frozenset[str]
    written: int
    checked: int


def read_shown(warehouse: Warehouse, markets: Sequence[str]) -> dict[Key, Shown]:
    """The rows of the marketplaces by what they are of, without those that a model which did not
    answer left to be made."""
    return {
        (name, row["server_id"], row["tool"], row["task"], row["index"]): make_shown(row)
        for name in markets
        for row in warehouse.tables.read(PAIRS, name).to_dicts()
        if row["error_kind"] not in PASSING
    }


def make_shown(row: Mapping[str, Any]) -> Shown:
    steps = [step["step"] for step in json.loads(row["steps"] or "[]")]
    checked = steps.count(CHECK)
    about = {row["contract_digest"], *json.loads(row["offered"] or "[]")}
    about |= {golden.contract_digest for golden in read_goldens(row)}
    return Shown(
        frozenset(about),
        frozenset(json.loads(row["contracts"] or "[]")),
        len(steps) - checked + reaches_judge(row),
        checked,
    )


def count_reached(before: Mapping[Key, Shown], now: Mapping[Key, Shown]) -> int:
    """Model calls that a full run takes for the rows which are about, or show, other contracts than
    they did, or are new. What several marketplaces list alike is asked once."""
    reached = defaultdict[Any, int](int)
    for key, one in now.items():
        of = (*key[1:], one.about, one.shown)
        reached[of] = max(reached[of], _count_anew(before.get(key), one))
    return sum(reached.values())


def _count_anew(before: Shown | None, now: Shown) -> int:
    written = now.written if before is None or before.about != now.about else 0
    return written + (now.checked if before is None or before.shown != now.shown else 0)
