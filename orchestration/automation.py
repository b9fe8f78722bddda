"""When assets run by themselves: the one condition of everything that joins or follows new data.

The documented recipe of replacing `newly_updated` gives no early cut-off, and resetting on
`newly_requested` alone loses a change that lands on the tick after a request. Measured on
dagster 1.13.27; `tests/orchestration/test_each_thing_once.py` ticks an instance through every case,
`test_each_thing_once.py` the whole graph. Conditions of our own are evaluated in the code location.
"""

from abc import abstractmethod
from collections.abc import Callable

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus

_Condition = dg.AutomationCondition


def on_new_data() -> dg.AutomationCondition:
    """Due when any upstream partition has a *new data version*, once everything upstream is quiet.

    What was made from the current versions by whatever run is not asked for again; a failure is
    asked for once more. It does not wait for every marketplace to exist: `~any_deps_missing()` on
    a fan-in would deadlock it until each one has run once.
    """
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
    """Whether the inputs or the code are others than those that its last version records."""

    async def is_met(self, context: dg.AutomationContext) -> bool:
        view = context.asset_graph_view
        resolver = CachingStaleStatusResolver(view.instance, view.asset_graph, view)
        return resolver.get_status(context.key) is not StaleStatus.FRESH


class UpstreamSettled(_AssetCondition):
    """Whether no ancestor, however far, is being made or can still come to be due by this tick.

    An ancestor that this tick asks for goes into the same run, before this asset; one that only
    follows from what this tick asks for is decided on at a later tick.
    """

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
