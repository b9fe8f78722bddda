"""What callers are asked: items made of test rows, and the plan that says how many of which.

What belongs here: which rows, among which tools, how often. What does not: choosing distractors
(`training/offers.py`), changing schemas (`perturb.py`), what is gone (`phantom.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
Contract = Mapping[str, Any]


@dataclass(frozen=True)
class TestPlan:
    """How many items of each sort. The defaults are a night's: two models of the tiny base are
    asked in about 80 s on two cores.

    `per_split` items a split at the smallest number of candidates, `per_large` at each larger one;
    `perturbations` a kind of change; `irrelevance` requests whose right tool is left out, beside
    all no-tool rows up to as many; `phantom` requests of each kind.
    """

    __test__ = False  # not a test case, whatever its name

    splits: tuple[str, ...] = ("seen_tool", "unseen_tool", "unseen_server", "unseen_time")
    candidates: tuple[int, ...] = (10, 100)
    distractors: tuple[str, ...] = ("random", "hard")
    per_split: int = 60
    per_large: int = 12
    perturbations: int = 24
    irrelevance: int = 40
    phantom: int = 40
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Item:
    """One question with its right answer: `expected` calls, [] where none is right. `dead` is a
    name the tool no longer has."""

    item_id: str
    pair_id: str
    split: str
    task: str
    distractors: str
    server_id: str
    tool: str
    kind: str
    text_digest: str
    seed: int
    instruction: str
    tools: list[dict[str, Any]]
    expected: list[dict[str, Any]]
    perturbation: str = "none"
    phantom: str = ""
    dead: str = ""
    examples: tuple[Any, ...] = field(default=(), repr=False)
