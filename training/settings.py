"""What a user sets of training sets, evaluation and releases; every command reads these."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class EvaluationOptions:
    items: Annotated[int, Field(ge=1, description="of each split, that a run asks callers")] = 8


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PromotionPolicy:
    by_hand: Annotated[
        tuple[str, ...],
        Field(description="roles whose candidates wait for `toolmill champion --approve`"),
    ] = ()


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetentionPolicy:
    keep: Annotated[int, Field(ge=1, description="releases that a rollback can go back to")] = 5


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CurriculumPolicy:
    """How much more an evaluation has explored and written."""

    tools: Annotated[int, Field(ge=0, le=1000, description="an evaluation, one task of each")] = 8
    turns: Annotated[
        float, Field(gt=0, le=1, description="of them, in turn and whatever their errors")
    ] = 0.34
    most: Annotated[int, Field(ge=1, le=7, description="tasks of a tool in all")] = 3


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrainPolicy:
    """When drift is enough, and when not to try."""

    min_share: Annotated[
        float,
        Field(ge=0, le=1, description="of tools that moved, by class and use, asks for retraining"),
    ] = 0.01
    min_decay: Annotated[
        float, Field(ge=0, le=1, description="of frozen items that a champion had and lost")
    ] = 0.02
    alpha: Annotated[
        float, Field(gt=0, lt=1, description="false alarms of the test of lost items")
    ] = 0.05
    min_gain: Annotated[
        float,
        Field(ge=0, le=0.05, description="on requests of new contracts, expected of a training"),
    ] = 0.02  # of 30 nights whose trainings gain nothing 17 train, and all 30 at 0.01
    retry_days: Annotated[
        float, Field(gt=0, le=365, description="after which past trainings count for nothing")
    ] = 14.0
    cool_down_h: Annotated[
        float | None, Field(ge=0, description="hours between trainings; not set: 20, in the demo 0")
    ] = None


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SplitSettings:
    """What is never trained on. The side of a server is frozen; no setting moves it."""

    unseen_tools: Annotated[float, Field(ge=0, le=0.5, description="of a train server's tools")] = (
        0.1
    )
    executed: Annotated[
        Literal["any", "valid", "proved"],
        Field(description="pairs by their executed calls: valid drops invalid responses"),
    ] = "any"
    seen_tools: Annotated[float, Field(ge=0, le=1, description="of a train tool's pairs")] = 0.12
    trajectories: Annotated[
        bool, Field(description="learn from the trajectories that `toolmill worlds --play` kept")
    ] = False
