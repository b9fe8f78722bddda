"""The settings of retraining: `[training.drift]` in toolmill.toml."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrainPolicy:
    """When drift is enough, and when not to try."""

    min_share: Annotated[
        float,
        Field(ge=0, le=1, description="of tools that moved, by class and use, asks for retraining"),
    ] = 0.01
    min_shift: Annotated[
        float, Field(ge=0, le=1, description="squared MMD, of tools that came or of searches")
    ] = 0.004
    min_accept_shift: Annotated[
        float, Field(ge=0, le=1, description="in the share of judged pairs that are accepted")
    ] = 0.05
    min_decay: Annotated[
        float, Field(ge=0, le=1, description="of frozen items that a champion had and lost")
    ] = 0.02
    min_phantom: Annotated[
        float, Field(ge=0, le=1, description="of a champion's training calls that name nothing now")
    ] = 0.02
    alpha: Annotated[
        float, Field(gt=0, lt=1, description="false alarms of all tests together (Holm)")
    ] = 0.05
    min_gain: Annotated[
        float, Field(ge=0, le=1, description="Recall@1 that a training must be expected to bring")
    ] = 0.001
    cool_down_h: Annotated[
        float | None,
        Field(ge=0, description="hours between trainings; not set: 20, in the demo 0"),
    ] = None
    gpu_hours_month: Annotated[
        float | None, Field(ge=0, description="of training in 30 days; not set: no limit")
    ] = None
    usd_month: Annotated[
        float | None, Field(ge=0, description="for trainings in 30 days; not set: no limit")
    ] = None
    usd_per_gpu_hour: Annotated[float, Field(ge=0, description="what an hour costs you")] = 0.0
    min_rows: Annotated[int, Field(ge=1, description="training pairs, fewer train nothing")] = 20
    max_attempts: Annotated[int, Field(ge=1, description="of training on one set")] = 3
