"""Hyper-parameters of the caller, by profile: published ones, and ours for SmolLM2 on two cores."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from assets.vectors.encoders.hub import is_hub_name, split_hub_id
from training.caller.smollm2 import SMOLLM2, is_smollm2
from training.runtime.model_store import Positive, Rate, Share, Whole, read_hyper_parameters

MCP_FLOW = "mcp-flow"
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Candidates = Annotated[int, Field(ge=1)]
Distractors = Literal["random", "hard", "mixed"]
Decay = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CallerSettings:
    """Hyper-parameters; together with the training set and the base they name the adapter.

    The defaults are the profile "mcp-flow". One update of the weights takes `batch * accumulate`
    rows whatever `packing`, `pass_tokens` and the number of processes are.
    """

    profile: str = MCP_FLOW
    rank: Whole = 16
    alpha: Whole = 32
    dropout: Share = 0.1
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    learning_rate: Positive = 5e-5
    warmup: Share = 0.1  # of the updates
    weight_decay: Decay = 0.0
    clip: Positive = 1.0  # of the gradients' norm
    epochs: Whole = 1
    batch: Whole = 2  # rows in one pass where packing is off
    accumulate: Whole = 8
    candidates: Candidates = 10
    distractors: Distractors = "mixed"
    shortlist: Whole | None = None  # candidates that a ranking leaves to it; None: all
    update_tokens: Whole | None = None  # of a nightly update; None: it learns all rows again
    context: Whole = 8192
    packing: bool = True
    pass_tokens: Whole | None = None  # most tokens of one packed pass; None: `context`
    gradient_checkpointing: bool | None = None  # None: on a GPU
    attention: str = "auto"
    checkpoint_steps: Whole = 25
    seed: int = 7
    device: str = "auto"
    threads: int | None = None


def _check_base(base: str) -> str:
    """A hub id names a commit. Whether a folder is there is seen when it is loaded."""
    if is_hub_name(base) and not is_smollm2(base):
        split_hub_id(base)
    return base


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CallerOptions:
    """What a user sets of the caller: its base, and the hyper-parameters that differ from those of
    its profile (None: as the profile says)."""

    base: Annotated[
        str,
        AfterValidator(_check_base),
        Field(description="smollm2, a local folder, or a hub id at a commit (name@commit)"),
    ] = SMOLLM2
    profile: Annotated[
        Literal["mcp-flow", "smollm2"] | None, Field(description="default: by the base")
    ] = None
    rank: Whole | None = None
    alpha: Whole | None = None
    learning_rate: Rate | None = None
    epochs: Whole | None = None
    batch: Annotated[Whole | None, Field(description="rows a pass where packing is off")] = None
    candidates: Annotated[Candidates | None, Field(description="tools a prompt shows")] = None
    context: Annotated[
        Annotated[int, Field(ge=128)] | None, Field(description="most tokens of a row")
    ] = None
    shortlist: Annotated[
        Whole | None, Field(description="candidates that a ranking leaves to the model")
    ] = None
    update_tokens: Annotated[
        Whole | None, Field(description="tokens that a nightly update learns")
    ] = None
    pass_tokens: Annotated[
        Whole | None, Field(description="most tokens of a packed pass; default: context")
    ] = None
    gradient_checkpointing: bool | None = None

    @field_validator("rank", "alpha")
    @classmethod
    def _check_shape(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Whether an adapter of this shape can go on from the shipped one, where updates do."""
        shipped = getattr(PROFILES[SMOLLM2], str(info.field_name))
        goes_on = is_smollm2(info.data.get("base", "")) and info.data.get("profile") != MCP_FLOW
        if goes_on and value not in (None, shipped):
            raise ValueError(
                f"the adapter of smollm2 that trainings go on from has {shipped}; leave it out, or"
                f" set profile to {MCP_FLOW}: then they start from nothing"
            )
        return value

    def resolve(self, **common: Any) -> CallerSettings:
        """The hyper-parameters in force; `common`: those that other models share."""
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        base, profile = chosen.pop("base"), chosen.pop("profile", None)
        return resolve_caller_settings(base, profile, **{**common, **chosen})


PROFILES: dict[str, CallerSettings] = {
    # arXiv 2510.24284, appendix: LoRA of Qwen3-0.6B, Qwen3-4B and Llama-3.1-8B-Instruct.
    MCP_FLOW: CallerSettings(),
    SMOLLM2: CallerSettings(
        profile=SMOLLM2,
        dropout=0.0,
        targets=LINEAR,
        learning_rate=5e-4,
        batch=8,
        accumulate=1,
        candidates=1,  # as many as `shortlist` leaves it when it answers
        shortlist=1,
        update_tokens=12_000,
        context=2048,
        pass_tokens=1536,
    ),
}


def get_base_profile(base: str) -> CallerSettings:
    """The profile a base is trained with unless another is asked for."""
    return PROFILES[SMOLLM2 if is_smollm2(base) else MCP_FLOW]


def resolve_caller_settings(
    base: str, profile: str | None = None, **changed: Any
) -> CallerSettings:
    """The base's profile (or the named one) with some values changed. Raises TrainingFailed."""
    chosen = PROFILES[profile] if profile else get_base_profile(base)
    return read_settings({**asdict(chosen), **changed})


def read_settings(values: Mapping[str, Any]) -> CallerSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    return read_hyper_parameters("caller", CallerSettings, values)
