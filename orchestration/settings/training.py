"""The settings of training: `[training]` in toolmill.toml, `TOOLMILL_TRAINING__…` in the shell."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestration.settings.place import Place
from training.drift.decide import RetrainPolicy
from training.retriever.settings import RetrieverSettings
from training.sets.policy import SplitSettings


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CallerOptions(_Part):
    """Hyper-parameters of the caller that differ from its profile's; None: as the profile says."""

    profile: str | None = Field(default=None, description="mcp-flow, tiny; default: by the base")
    rank: int | None = Field(default=None, ge=1)
    alpha: int | None = Field(default=None, ge=1)
    dropout: float | None = Field(default=None, ge=0, lt=1)
    learning_rate: float | None = Field(default=None, gt=0)
    epochs: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1, description="rows a pass where packing is off")
    accumulate: int | None = Field(default=None, ge=1)
    candidates: int | None = Field(default=None, ge=2, description="tools a prompt shows")
    distractors: Literal["random", "hard", "mixed"] | None = None
    context: int | None = Field(default=None, ge=128, description="most tokens of a row")
    packing: bool | None = None
    gradient_checkpointing: bool | None = None
    checkpoint_steps: int | None = Field(default=None, ge=1)

    def changed(self) -> dict[str, Any]:
        """The hyper-parameters that were set."""
        return self.model_dump(exclude_none=True, exclude={"profile"})


class Training(_Part):
    """The models that are trained, on what, where and for how long."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    runs_on: Literal["subprocess", "ray", "kubernetes"] = Field(
        default="subprocess", description="where a training script runs"
    )
    processes: int = Field(
        default=Place.processes, ge=1, description="that train one model together"
    )
    gpus: int = Field(default=Place.gpus, ge=0, description="that a Ray job or a pod asks for")
    ray_address: str | None = Field(default=None, description="of the Ray cluster's job server")
    image: str | None = Field(default=None, description="of Kubernetes pods, with toolmill[train]")
    namespace: str | None = Field(default=None, description="of Kubernetes pods")
    split: SplitSettings = SplitSettings()
    retriever_base: str = Field(default="minilm", description="minilm, a local path, or a hub id")
    retriever_epochs: int = Field(default=RetrieverSettings.epochs, ge=1)
    caller_base: str = Field(default="tiny", description="tiny, a local path, or a hub id")
    caller: CallerOptions = CallerOptions()
    test_items: int = Field(
        default=40, ge=1, description="requests of each split that a run asks callers"
    )
    examples: int = Field(
        default=0, ge=0, le=20, description="similar accepted pairs in a prompt of `evaluate`"
    )
    seed: int = RetrieverSettings.seed
    drift_threshold: float = Field(
        default=RetrainPolicy.min_share,
        ge=0,
        le=1,
        description="share of changed tools that asks for retraining",
    )
    keep_releases: int = Field(default=5, ge=1, description="that a rollback can go back to")
    ablation_seeds: tuple[int, ...] = Field(default=(7, 8, 9), min_length=1)
    ablate_caller: bool = Field(default=False, description="minutes an arm, on the model chosen")
