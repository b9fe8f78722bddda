"""Hyper-parameters of the sidecar's GRPO."""

from dataclasses import asdict, field
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from extensions.sidecar.rewards.weights import RewardWeights
from training.runtime.settings import Positive, Rate, Share, Whole

Group = Annotated[int, Field(ge=2)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GrpoSettings:
    """One update of the weights takes `prompts * group` completions, `pass_rows` at a time. Raises
    ValueError where they do not come out even."""

    steps: Whole = 200  # updates of the weights
    group: Group = 8  # completions of one prompt, which are compared
    prompts: Whole = 4  # of an update
    pass_rows: Whole = 8  # completions of one pass through the model
    learning_rate: Positive = 1e-5
    warmup: Share = 0.05  # of the updates
    clip: Positive = 1.0  # of the gradients' norm
    beta: Annotated[float, Field(ge=0)] = 0.0  # weight of the distance to where it started
    epsilon: Positive = 0.2  # of the ratio to the policy that wrote the completions
    temperature: Positive = 1.0
    max_new: Whole = 512  # tokens of a completion
    guard: bool = True  # a group that fails alike is written again with a worked example
    replay: str | None = None  # a replay file whose worlds answer calls
    multi_turn: bool = False  # `executed` is what the whole replayed trajectory is worth
    vllm: bool = False  # completions by vLLM in the same process; on a GPU, vllm installed
    probe: Whole = 64  # training rows answered before and after, for the card
    weights: RewardWeights = field(default_factory=RewardWeights)

    @model_validator(mode="after")
    def check_batch(self) -> "GrpoSettings":
        completions = self.prompts * self.group
        if completions % self.pass_rows:
            raise ValueError(
                f"pass_rows is {self.pass_rows}, expected a divisor of prompts * group"
                f" ({self.prompts} * {self.group} = {completions})"
            )
        return self


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GrpoOptions:
    """What a user sets of GRPO (None: as the profile of the base says)."""

    steps: Annotated[Whole | None, Field(description="updates of the weights")] = None
    group: Annotated[Group | None, Field(description="completions of one prompt")] = None
    prompts: Annotated[Whole | None, Field(description="prompts of an update")] = None
    pass_rows: Annotated[Whole | None, Field(description="completions of one pass")] = None
    learning_rate: Rate | None = None
    beta: Annotated[
        Annotated[float, Field(ge=0)] | None,
        Field(description="weight of the distance to where it started"),
    ] = None
    temperature: Positive | None = None
    max_new: Annotated[Whole | None, Field(description="most tokens of a completion")] = None
    guard: Annotated[
        bool | None, Field(description="write groups that fail again with a worked example")
    ] = None
    replay: Annotated[str | None, Field(description="a replay file whose worlds answer calls")] = (
        None
    )
    multi_turn: Annotated[bool | None, Field(description="score the whole replayed trajectory")] = (
        None
    )
    vllm: Annotated[bool | None, Field(description="write by vLLM, on a GPU")] = None

    def resolve(self, profile: GrpoSettings) -> GrpoSettings:
        """The profile with what is set. Raises ValueError."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return GrpoSettings(**{**asdict(profile), **given})


TINY_GRPO = GrpoSettings(steps=60, learning_rate=1e-3, max_new=96, probe=128)
