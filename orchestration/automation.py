"""When assets run by themselves: the one condition of everything that joins or follows new data.

The documented recipe of replacing `newly_updated` gives no early cut-off, and resetting on
`newly_requested` alone loses a change that lands on the tick after a request. Measured on
dagster 1.13.27; `tests/orchestration/test_on_new_data.py` ticks an instance through every case.
"""

import dagster as dg

_Condition = dg.AutomationCondition


def on_new_data() -> dg.AutomationCondition:
    """Due when any upstream partition has a *new data version*, once everything around is quiet.

    It does not wait for every marketplace to exist: `~any_deps_missing()` on a fan-in would
    deadlock it until each one has run once.
    """
    changed = _Condition.any_deps_match(_Condition.data_version_changed())
    handled = (_Condition.newly_requested() & ~changed) | _Condition.initial_evaluation()
    failed = _Condition.execution_failed().newly_true()
    due = changed.since(handled) | _Condition.code_version_changed() | failed
    quiet = ~_Condition.in_progress() & ~_Condition.any_deps_in_progress()
    return (due & quiet).with_label("on_new_data")
