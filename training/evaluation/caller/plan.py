"""How many items of which sort callers are asked."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from training.sets.candidates import HARD, RANDOM
from training.sets.split import TEST_SPLITS


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class EvaluationOptions:
    """What a user sets of the callers' evaluation."""

    items: Annotated[int, Field(ge=1, description="of each split, that a run asks callers")] = 40
    examples: Annotated[
        int, Field(ge=0, le=20, description="similar accepted pairs in a prompt of `evaluate`")
    ] = 0


@dataclass(frozen=True)
class TestPlan:
    """How many items of each sort. The defaults are a run's.

    `per_split` items a split at the smallest number of candidates, `per_large` at each larger one;
    `perturbations` of each kind of change; `irrelevance` requests whose right tool is left out, and
    as many no-tool rows at most; `phantom` requests of each kind.
    """

    __test__ = False  # not a test case, whatever its name

    splits: tuple[str, ...] = TEST_SPLITS
    candidates: tuple[int, ...] = (10, 100)
    distractors: tuple[str, ...] = (RANDOM, HARD)
    per_split: int = EvaluationOptions.items
    per_large: int = 8
    perturbations: int = 20
    irrelevance: int = 30
    phantom: int = 30
    seeds: tuple[int, ...] = (0,)

    def limit_items(self, n: int) -> "TestPlan":
        """`n` items a split, and no more of any other sort."""
        sorts = ("per_large", "perturbations", "irrelevance", "phantom")
        return replace(self, per_split=n, **{name: min(getattr(self, name), n) for name in sorts})
