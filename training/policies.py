"""What is trained and measured, how and where: one object that the settings fill."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from assets.vectors.embed import Embedder, Prompts
from extensions.bench.ablations.run import AblationSettings
from extensions.sidecar.settings import SidecarOptions, SidecarSettings, get_sidecar_profile
from training.caller.settings import CallerOptions, CallerSettings, get_base_profile
from training.caller.tiny.base import TINY
from training.drift.bases import BASE, name_base
from training.drift.facts import Facts, read_facts
from training.drift.policy import RetrainPolicy
from training.drift.sources import Sources
from training.evaluation.caller.plan import TestPlan
from training.releases.promotion import PromotionPolicy
from training.releases.retention import RetentionPolicy
from training.retriever.settings import RetrieverOptions, RetrieverSettings
from training.runtime.model_store import select_recipe
from training.sets.policy import SetPolicy
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from warehouse.llm.roles import Role

ROLES = (
    "retriever",
    "caller",
    "sidecar",
)  # that a training set teaches; the reranker learns from calls


@dataclass(frozen=True)
class Trainer:
    """`retriever_base`, `caller_base` and `sidecar_base`: as their trainings take them. drafter:
    the model whose drafts the sidecar learns from too; None: nobody's. unverified: whether the
    index that is served shows tools that nobody launched; nothing is trained on them. gpus: that a
    training takes, as hours of it are counted."""

    split: SetPolicy = field(default_factory=SetPolicy)
    retriever: RetrieverSettings = field(default_factory=RetrieverSettings)
    retriever_base: str = RetrieverOptions.base
    caller: CallerSettings = field(default_factory=lambda: get_base_profile(TINY))
    caller_base: str = CallerOptions.base
    caller_test: TestPlan = field(default_factory=TestPlan)
    sidecar: SidecarSettings = field(default_factory=lambda: get_sidecar_profile(TINY))
    sidecar_base: str = SidecarOptions.base
    sidecar_items: int = field(default_factory=lambda: SidecarOptions().count_items())
    drafter: "Role | None" = None
    drift: RetrainPolicy = field(default_factory=RetrainPolicy)
    ablations: AblationSettings = field(default_factory=AblationSettings)
    releases: RetentionPolicy = field(default_factory=RetentionPolicy)
    promotion: PromotionPolicy = field(default_factory=PromotionPolicy)
    unverified: bool = False
    gpus: int = 1

    def get_role_job(self, role: str) -> tuple[str, dict[str, Any]]:
        """(base, hyper-parameters) of a role."""
        if role == "retriever":
            return self.retriever_base, asdict(self.retriever)
        if role == "sidecar":
            return self.sidecar_base, asdict(self.sidecar)
        return self.caller_base, asdict(self.caller)

    def list_recipes(self) -> dict[str, dict[str, Any]]:
        """Role -> the base and the hyper-parameters that name what is trained."""
        jobs = {role: self.get_role_job(role) for role in ROLES}
        return {
            role: {BASE: name_base(role, base), **select_recipe(settings)}
            for role, (base, settings) in jobs.items()
        }

    def read_facts(self, warehouse: Warehouse, failed_attempts: int = 0) -> Facts:
        """What a decision to train stands on beside the signals of drift."""
        return read_facts(
            warehouse,
            self.list_recipes(),
            self.drift,
            gpus=self.gpus,
            failed_attempts=failed_attempts,
        )

    def open_sources(
        self, warehouse: Warehouse, facts: Facts, embedder: Callable[[], Embedder]
    ) -> Sources:
        """What the signals of drift are measured of."""
        known, prompts = facts.trained_on, self.retriever.prompts or Prompts()
        at = facts.last_run.at
        return Sources(warehouse, known.trained_on, at, embedder, self.retriever.start, prompts)
