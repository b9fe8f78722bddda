"""What each part of a reward weighs, and the most that each kind of answer is worth."""

from dataclasses import fields
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from training.runtime.settings import Share

Weight = Annotated[float, Field(ge=0, le=1)]
# Parts of a right answer that can be lost: a needless change, the fixer, a call that fails.
_LOST = ("kept", "executed")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RewardWeights:
    """`parsed` to `executed`: weights of the parts of a call (`score.py` says what each measures);
    a part that cannot be measured is left out and the others make up the whole.

    The others, from 0 to 1: `fixed` is what is left of `parsed` where the JSON fixer was needed.
    The mean of the parts is multiplied by 1 for a right call, by `wrong` for one that is not right
    yet, by `copy` for a flawed draft that comes back as it was, by `harmful` for one that fits its
    schema and would do something else. A question is worth `asked_in_vain` where a call is right;
    where asking is right it is worth `asked` and the rest by the words it shares with the right
    one, and a call that validation would stop is worth `called_in_vain` (one that would be sent:
    0). Raises ValueError where a right answer would not be worth most.
    """

    parsed: Weight = 0.1
    tool: Weight = 0.1
    schema: Weight = 0.15
    values: Weight = 0.35
    grounded: Weight = 0.1
    kept: Weight = 0.1
    executed: Weight = 0.1
    fixed: Weight = 0.8
    wrong: Share = 0.75
    copy: Share = 0.1
    harmful: Share = 0.05
    asked: Weight = 0.8
    asked_in_vain: Share = 0.2
    called_in_vain: Share = 0.05

    @model_validator(mode="after")
    def check_order(self) -> "RewardWeights":
        """A right call first; a question before a copy and before what does harm."""
        least = self.least_right
        if self.wrong >= least:
            raise ValueError(f"wrong is {self.wrong}, expected less than {least:.2f}, what a right"
                             " call is worth at least: lower wrong, kept or executed")  # fmt: skip
        if self.asked_in_vain <= max(self.copy, self.harmful):
            raise ValueError(f"asked_in_vain is {self.asked_in_vain}, expected more than copy"
                             f" ({self.copy}) and harmful ({self.harmful})")  # fmt: skip
        if self.called_in_vain >= self.asked:
            raise ValueError(f"called_in_vain is {self.called_in_vain}, expected less than asked"
                             f" ({self.asked})")  # fmt: skip
        return self

    @property
    def least_right(self) -> float:
        """The least that a right call is worth: all that it can lose lost, other parts absent."""
        lost = sum(getattr(self, name) for name in _LOST) + self.parsed * (1 - self.fixed)
        whole = sum(getattr(self, name) for name in PARTS)
        return 1 - lost / whole if whole else 0.0


PARTS = tuple(one.name for one in fields(RewardWeights))[:7]  # type: ignore[arg-type]
WEIGHTS = RewardWeights()
