"""When assets run by themselves: one condition for fan-ins, one for assets with the same key.

What belongs here: automation conditions. What does not: schedules and sensors.

The documented recipe of replacing `newly_updated` gives no early cut-off, and resetting on
`newly_requested` alone loses a change that lands on the tick after a request. Measured on
dagster 1.13.27; `tests/automation` ticks an instance through every case.
"""

import dagster as dg

_Condition = dg.AutomationCondition


def on_new_data() -> dg.AutomationCondition:
    """For a fan-in: due when any upstream partition has a *new data version*, once it is quiet.

    It does not wait for every marketplace to exist: `~any_deps_missing()` on a fan-in would
    deadlock it until each one has run once.
    """
    return (_due() & _quiet()).with_label("on_new_data")


def on_new_data_of_same_key() -> dg.AutomationCondition:
    """For an asset whose upstreams have the same partitions: also when it was never made."""
    missing = _Condition.newly_missing()
    ready = _quiet() & ~_Condition.any_deps_missing()
    return ((_due() | missing) & ready).with_label("on_new_data_of_same_key")


def _due() -> dg.AutomationCondition:
    changed = _Condition.any_deps_match(_Condition.data_version_changed())
    handled = (_Condition.newly_requested() & ~changed) | _Condition.initial_evaluation()
    pending = changed.since(handled)
    failed = _Condition.execution_failed().newly_true()
    return pending | _Condition.code_version_changed() | failed


def _quiet() -> dg.AutomationCondition:
    return ~_Condition.in_progress() & ~_Condition.any_deps_in_progress()
