"""Hyper-parameters of the sidecar: the caller's, by the same profiles, and what its data is."""

from collections.abc import Mapping
from dataclasses import asdict, field, replace
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


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GrpoSettings:
    """An update takes `prompts * group` completions, `pass_rows` each, evenly, or ValueError."""

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
    probe: Whole = 64  # training rows answered before and after, for the card

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

    def resolve(self, profile: GrpoSettings) -> GrpoSettings:
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(profile, **chosen)


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
