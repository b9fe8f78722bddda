"""The code location: every asset, job, schedule and sensor, built by `build_defs`."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus

import assets.catalogue.defs
import assets.contracts.defs
import assets.marketplaces.defs
import assets.outcomes.defs
import assets.outcomes.reliability.defs
import assets.servers.defs
import assets.synthesis.defs
import assets.vectors.defs
import training.defs
import training.releases.defs
import training.reporting.defs
from assets.partitions import NIGHTLY, ONE_SERVER_JOB, SERVER_TAG, marketplaces
from orchestration.alerts import alert_on_failure, alert_on_silence
from orchestration.resources import build_default_resources
from orchestration.sensors import is_training_due, nightly_schedule, retrain_on_drift
from training.role import list_roles, list_trained_roles
from warehouse.extensions import DEFINITIONS, load_extensions

_Condition = dg.AutomationCondition


def on_new_data() -> dg.AutomationCondition:
    """Due when any upstream partition has a *new data version* and everything upstream is quiet; a
    failure is asked for once more. It does not wait for every marketplace: `~any_deps_missing()` on
    a fan-in would deadlock it until each one has run."""
    changed = _Condition.any_deps_match(_Condition.data_version_changed())
    changed = changed | _Condition.code_version_changed()
    failed = _Condition.execution_failed().newly_true()
    failed_first = failed.since(changed | _Condition.newly_updated()).newly_true()
    trigger = changed | failed_first
    handled = (_Condition.newly_requested() & ~trigger) | _Condition.initial_evaluation()
    due = trigger.since(handled) & InputsChanged()
    return (due & ~_Condition.in_progress() & UpstreamSettled()).with_label("on_new_data")


class _AssetCondition(dg.AutomationCondition):
    """A condition of a whole asset without partitions, that keeps nothing between ticks."""

    @property
    def requires_cursor(self) -> bool:
        return False

    @abstractmethod
    async def is_met(self, context: dg.AutomationContext) -> bool: ...

    async def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        met = not context.candidate_subset.is_empty and await self.is_met(context)
        return dg.AutomationResult(
            context, context.candidate_subset if met else context.get_empty_subset()
        )


class InputsChanged(_AssetCondition):
    async def is_met(self, context: dg.AutomationContext) -> bool:
        view = context.asset_graph_view
        resolver = CachingStaleStatusResolver(view.instance, view.asset_graph, view)
        return resolver.get_status(context.key) is not StaleStatus.FRESH


class UpstreamSettled(_AssetCondition):
    """Whether no ancestor is being made or due in this tick. One that this tick asks for joins the
    same run, before this asset; what follows from it is decided at a later tick."""

    async def is_met(self, context: dg.AutomationContext) -> bool:
        view, graph = context.asset_graph_view, context.asset_graph
        requested = {key for key, subset in context.request_subsets_by_key.items() if subset.size}
        for key in graph.get_ancestor_asset_keys(context.key):
            everything = view.get_full_subset(key=key)
            run = await view.compute_run_in_progress_subset(key=key, from_subset=everything)
            backfill = await view.compute_backfill_in_progress_subset(
                key=key, from_subset=everything
            )
            follows = key not in requested and requested & graph.get_ancestor_asset_keys(key)
            if follows or not (run.is_empty and backfill.is_empty):
                return False
        return True


class NoTrainingDue(_AssetCondition):
    """Whether no training is about to be asked for, as `is_due` says of the instance."""

    def __init__(self, is_due: Callable[[dg.DagsterInstance], bool]) -> None:
        self._is_due = is_due

    async def is_met(self, context: dg.AutomationContext) -> bool:
        return not self._is_due(context.asset_graph_view.instance)


PACKAGES = (
    assets.marketplaces.defs,
    assets.servers.defs,
    assets.contracts.defs,
    assets.catalogue.defs,
    assets.vectors.defs,
    assets.synthesis.defs,
    assets.outcomes.defs,
    assets.outcomes.reliability.defs,
    training.defs,
    training.releases.defs,
    training.reporting.defs,
)
# Fan-ins that follow new data by themselves. The adapters are not among them: `retrain_on_drift`
# or a person asks for those, since a training costs more than all the rest of a run.
FAN_IN = (
    *("contract_changes", "catalogue", "listed_contracts"),
    *("server_summaries", "confusables", "reliability", "training_set"),
    "drift",  # before a training, which it decides on
)
_MEASURING = ("evaluation", "champion")
TRAINED = [f"{role}_adapter" for role in list_trained_roles()]
MEASURED = [f"{role}_{step}" for role in list_trained_roles() for step in _MEASURING]
# What learns from calls costs seconds, and nothing while there are few: with whatever is served.
TAUGHT_BY_CALLS = [
    f"{name}_{step}"
    for name, role in list_roles().items()
    if role.learns_from_calls
    for step in ("adapter", *_MEASURING)
]
SERVED = (
    "spend",
    *TAUGHT_BY_CALLS,
    "outcomes_report",
    "release",
    "router_index",
    "report",
    "curriculum",
)
FOLLOWS_NEW_DATA = {*FAN_IN, *MEASURED, *SERVED}
AFTER_TRAINING = FOLLOWS_NEW_DATA - {*FAN_IN, "spend"}  # what an adapter leads to


def build_defs(
    *,
    resources: Mapping[str, Any] | None = None,
    loggers: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """The code location; `resources` replaces some (test fakes), `metadata` is on every page."""
    extensions = load_extensions(DEFINITIONS).values()
    loaded = dg.load_assets_from_modules([*PACKAGES, *extensions])
    assets = [asset for asset in loaded if isinstance(asset, dg.AssetsDefinition)]
    jobs = define_jobs()
    builders = [getattr(module, "build_sensors", None) for module in extensions]
    return dg.Definitions(
        assets=dg.map_asset_specs(
            lambda spec: _add_automation(spec).merge_attributes(metadata=metadata or {}), assets
        ),
        jobs=jobs,
        schedules=[nightly_schedule],
        sensors=[
            retrain_on_drift,
            *(sensor for build in builders if build for sensor in build(jobs)),
            alert_on_failure,
            alert_on_silence,
            dg.AutomationConditionSensorDefinition(
                "on_new_data", target=dg.AssetSelection.all(), use_user_code_server=True
            ),
        ],
        resources={**build_default_resources(), **(resources or {})},
        executor=dg.in_process_executor,
        loggers=loggers,
    )


def define_jobs() -> list[Any]:
    return [
        dg.define_asset_job(
            "nightly",
            selection=list(NIGHTLY),
            partitions_def=marketplaces,
            description="One marketplace, from its listings to executed calls of judged pairs.",
        ),
        dg.define_asset_job(
            ONE_SERVER_JOB,
            selection=[name for name in NIGHTLY if name != "listings"],
            partitions_def=marketplaces,
            description="One server of a marketplace again, from its launch to executed calls; the"
            f" rows of all others stay. Launch it with the tag {SERVER_TAG}: the server's id.",
        ),
        dg.define_asset_job(
            "fan_in", selection=list(FAN_IN), description="What joins all marketplaces."
        ),
        dg.define_asset_job(
            "train",
            selection=[*TRAINED, *MEASURED],
            description="Fine-tune each role, measure it, promote only a better champion.",
        ),
        dg.define_asset_job(
            "ablate",
            selection=["ablations"],
            description="Raw or filtered, random or hard, with or without evolution: what it is"
            " worth, on the same held-out items. Takes long; started by a person.",
        ),
        dg.define_asset_job(
            "serve",
            selection=list(SERVED),
            description="The result of the run: one consistent release and its index.",
        ),
    ]


def _add_automation(spec: dg.AssetSpec) -> dg.AssetSpec:
    if spec.key.to_user_string() not in FOLLOWS_NEW_DATA:
        return spec
    condition = on_new_data()
    if spec.key.to_user_string() in AFTER_TRAINING:
        condition = (condition & NoTrainingDue(is_training_due)).with_label(
            "on_new_data, after a training that is due"
        )
    return spec.replace_attributes(automation_condition=condition)


defs = build_defs()
