"""The sensor that rolls a release back whose calls end worse, thin over
`training.releases.live.rollback.watch_release`. Off until it is turned on under Automation."""

import time

import dagster as dg

from orchestration.alerts import (
    AlertUnsent,
    make_rollback_message,
    read_webhook,
    send_message,
)
from orchestration.factories import open_warehouse
from orchestration.settings.load import load_settings
from training.releases.decisions import list_rollbacks
from training.releases.index_source import make_hold
from training.releases.live.rollback import AUTHOR, watch_release
from training.releases.release import ReleaseError


@dg.sensor(
    name="roll_back_on_outcomes",
    minimum_interval_seconds=300,
    description="Serves the release before the served one again where calls end worse since.",
)
def roll_back_on_outcomes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    settings = load_settings()
    warehouse = open_warehouse(settings)
    try:
        found = watch_release(
            warehouse.home, settings.training.rollback, time.time(), make_hold(warehouse)
        )
    except ReleaseError as error:  # each tick would fail until a person or a run makes another
        return dg.SensorResult(
            cursor=context.cursor, skip_reason=f"it serves worse and stays: {error}"
        )
    # A message that could not be sent is sent by a later tick: the decision is kept, not the tick.
    own = [rollback for rollback in list_rollbacks(warehouse.home) if rollback.get("by") == AUTHOR]
    webhook = read_webhook()
    cursor = context.cursor
    if own and webhook is not None and own[-1]["id"] != cursor:
        try:
            send_message(webhook, make_rollback_message(own[-1]))
        except AlertUnsent as error:
            context.log.warning(str(error))
        else:
            cursor = own[-1]["id"]
    state = "rolled back: " if found.moved else ""
    return dg.SensorResult(cursor=cursor, skip_reason=state + found.why)
