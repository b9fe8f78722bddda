"""When the nightly runs start: one run a marketplace, so that one cannot hold back another."""

import dagster as dg

from orchestration.factories import list_enabled
from orchestration.settings.load import load_settings


@dg.schedule(
    cron_schedule="17 2 * * *",
    job_name="nightly",
    execution_timezone="UTC",
    description="One run per marketplace, every day at 02:17 UTC.",
)
def nightly_schedule(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
    run_date = context.scheduled_execution_time.date().isoformat()
    return [
        dg.RunRequest(run_key=f"{run_date}/{name}", partition_key=name)
        for name in list_enabled(load_settings())
    ]
