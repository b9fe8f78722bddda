"""What is trained and measured, how and where: one object that the settings fill."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from assets.vectors.encoders.embedder import Embedder
from serving.index.search_table import SEARCH_FROM
from training.caller.settings import CallerOptions, CallerSettings, get_base_profile
from training.drift.decide import Decision, decide_roles
from training.drift.evidence import TrainingEvidence, read_evidence
from training.drift.measure import DriftSources, measure_drift
from training.drift.signals import DriftSignal
from training.evaluation.caller_items import TestPlan
from training.retriever.settings import RetrieverSettings
from training.role import BASE, CALLER, RETRIEVER, UnknownRole, find_role, list_trained_roles
from training.runtime.model_store import select_recipe
from training.sets.split import SetPolicy
from training.settings import CurriculumPolicy, PromotionPolicy, RetentionPolicy, RetrainPolicy
from warehouse.store import Warehouse


@dataclass(frozen=True)
class TrainerPolicy:
    """options: extensions' blocks of `[training]`. unverified: whether the index shows tools that
    nobody launched; search_from: tools from which LanceDB searches it."""

    split: SetPolicy = field(default_factory=SetPolicy)
    retriever: RetrieverSettings = field(default_factory=RetrieverSettings)
    retriever_base: str = "minilm"
    caller: CallerSettings = field(default_factory=lambda: get_base_profile(CallerOptions.base))
    caller_base: str = CallerOptions.base
    caller_test: TestPlan = field(default_factory=TestPlan)
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = RetrieverSettings.device
    seed: int = RetrieverSettings.seed
    drift: RetrainPolicy = field(default_factory=RetrainPolicy)
    releases: RetentionPolicy = field(default_factory=RetentionPolicy)
    promotion: PromotionPolicy = field(default_factory=PromotionPolicy)
    curriculum: CurriculumPolicy = field(default_factory=CurriculumPolicy)
    unverified: bool = False
    search_from: int = SEARCH_FROM

    def get_role_settings(self, role: str) -> tuple[str, Any]:
        if role == RETRIEVER:
            return self.retriever_base, self.retriever
        if role == CALLER:
            return self.caller_base, self.caller
        describe = find_role(role).describe_job
        if describe is None:
            raise UnknownRole(f"role {role!r} has no training job")
        return describe(self.options.get(role), self.device, self.seed)

    def list_recipes(self) -> dict[str, dict[str, Any]]:
        """Role -> the base and the hyper-parameters that name what is trained."""
        recipes = {}
        for role in list_trained_roles():
            base, settings = self.get_role_settings(role)
            recipe = select_recipe(asdict(settings))
            recipes[role] = {BASE: find_role(role).name_base(base), **recipe}
        return recipes

    def read_evidence(self, warehouse: Warehouse, failed_attempts: int = 0) -> TrainingEvidence:
        """What decisions to train are made on beside the signals of drift."""
        return read_evidence(warehouse, self.list_recipes(), failed_attempts)

    def open_sources(
        self, warehouse: Warehouse, trained_on: str, embedder: Callable[[], Embedder]
    ) -> DriftSources:
        return DriftSources(warehouse, trained_on, embedder, self.retriever.start)

    def decide(
        self, warehouse: Warehouse, evidence: TrainingEvidence, embedder: Callable[[], Embedder]
    ) -> dict[str, Decision]:
        """Role -> whether it trains now. Drift is measured for it, or read if it was before."""

        def measure(trained_on: str) -> list[DriftSignal]:
            return measure_drift(self.open_sources(warehouse, trained_on, embedder), self.drift)

        return decide_roles(evidence.home, evidence.roles.values(), measure, self.drift)
