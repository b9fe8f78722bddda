"""Hyper-parameters of the sidecar: the caller's, by the same profiles, and what its data is."""

from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from training.caller.settings import MCP_FLOW, CallerOptions, CallerSettings
from training.caller.settings import PROFILES as CALLER_PROFILES
from training.caller.smollm2 import SMOLLM2, is_smollm2
from training.gates import Json, PromotionGate, check_gain, check_no_worse
from training.role import ModelRole
from training.runtime.model_store import Positive, Share, Whole, read_hyper_parameters

Group = Annotated[int, Field(ge=2)]
Weight = Annotated[float, Field(ge=0, le=1)]
# Parts of a right answer that can be lost: a needless change, the fixer, a call that fails.
_LOST = ("kept", "executed")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RewardWeights:
    """`parsed` to `executed`: weights of the parts of a call (`rewards.py` says what each
    measures); a part that cannot be measured is left out and the others make up the whole.

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
    max_new: Annotated[Whole | None, Field(description="most tokens of a completion")] = None
    guard: Annotated[
        bool | None, Field(description="write groups that fail again with a worked example")
    ] = None
    replay: Annotated[str | None, Field(description="a replay file whose worlds answer calls")] = (
        None
    )
    vllm: Annotated[bool | None, Field(description="write by vLLM, on a GPU")] = None

    def resolve(self, profile: GrpoSettings) -> GrpoSettings:
        """The profile with what is set. Raises ValueError."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return GrpoSettings(**{**asdict(profile), **given})


SMALL_GRPO = GrpoSettings(steps=60, learning_rate=1e-4, max_new=96, probe=128)
ROLE = "sidecar"
Algorithm = Literal["sft", "grpo", "sft+grpo"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SidecarSettings(CallerSettings):
    """The caller's, and: rows: drafts that are learned from, at most. algorithm: how. grpo: None
    where it is not used, so that it names no model that it has no part in."""

    rows: Whole = 20_000
    algorithm: Algorithm = "sft"
    grpo: GrpoSettings | None = None


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SidecarOptions(CallerOptions):
    """What a user sets of the sidecar; the other hyper-parameters are as its profile says."""

    rows: Annotated[Whole | None, Field(description="drafts learned from, at most")] = None
    algorithm: Algorithm | None = None
    grpo: GrpoOptions = field(default_factory=GrpoOptions)
    items: Annotated[
        Whole | None, Field(description="drafts of unseen servers that a run measures")
    ] = None

    def count_items(self) -> int:
        """How many drafts a run measures: few where a first run is to be short."""
        return self.items or (24 if get_sidecar_profile(self.base).profile == SMOLLM2 else 400)

    def resolve(self, **common: Any) -> SidecarSettings:
        """The hyper-parameters in force; `common`: those that other models share."""
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        base, profile = chosen.pop("base"), chosen.pop("profile", None)
        chosen.pop("items", None)
        sidecar_profile = get_sidecar_profile(base, profile)
        rewarded = "grpo" in (self.algorithm or sidecar_profile.algorithm)
        chosen["grpo"] = self.grpo.resolve(GRPO[sidecar_profile.profile]) if rewarded else None
        return replace(sidecar_profile, **{**common, **chosen})


# Of the small base few enough to be made in seconds; a budget of tokens says how many are learnt.
_ROWS = {SMOLLM2: {"rows": 96}}
PROFILES = {
    name: SidecarSettings(**{**asdict(profile), **_ROWS.get(name, {})})
    for name, profile in CALLER_PROFILES.items()
}
GRPO = {MCP_FLOW: GrpoSettings(), SMOLLM2: SMALL_GRPO}


def get_sidecar_profile(base: str, profile: str | None = None) -> SidecarSettings:
    """The profile that a base is trained with unless another is asked for."""
    return PROFILES[profile or (SMOLLM2 if is_smollm2(base) else MCP_FLOW)]


def read_settings(values: Mapping[str, Any]) -> SidecarSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    return read_hyper_parameters(ROLE, SidecarSettings, values)


LADDER = "ladder"  # the repair ladder alone serves until a sidecar is promoted


def _check_gates(summary: Json) -> list[PromotionGate]:
    return [check_gain(summary.get("gain")), check_no_worse(summary.get("kept"), "kept")]


def _describe_job(options: SidecarOptions | None, device: str, seed: int) -> tuple[str, Any]:
    chosen = options or SidecarOptions()
    return chosen.base, chosen.resolve(device=device, seed=seed)


SIDECAR = ModelRole(
    ROLE,
    LADDER,
    _check_gates,
    describe_job=_describe_job,
    score_request=lambda row: float(row["right"]) if row["tool"] else None,
)
