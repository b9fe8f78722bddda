"""The settings of training: `[training]` in toolmill.toml, `TOOLMILL_TRAINING__…` in the shell."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestration.settings.place import Place
from orchestration.settings.sections import add_sections
from training.caller.settings import CallerOptions
from training.drift.policy import RetrainPolicy
from training.evaluation.caller.plan import EvaluationOptions
from training.releases.live.regression import RollbackPolicy
from training.releases.promotion import PromotionPolicy
from training.releases.retention import RetentionPolicy
from training.retriever.settings import RetrieverOptions, RetrieverSettings
from training.sets.policy import SplitSettings


@add_sections("training.")
class Training(BaseModel):
    """The models that are trained, on what, where and for how long; each block is declared by the
    package whose policy it is."""

    model_config = ConfigDict(extra="forbid")

    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = RetrieverSettings.seed
    place: Place = Place()
    split: SplitSettings = SplitSettings()
    retriever: RetrieverOptions = RetrieverOptions()
    caller: CallerOptions = CallerOptions()
    evaluation: EvaluationOptions = EvaluationOptions()
    drift: RetrainPolicy = RetrainPolicy()
    releases: RetentionPolicy = RetentionPolicy()
    promotion: PromotionPolicy = PromotionPolicy()
    rollback: RollbackPolicy = RollbackPolicy()
