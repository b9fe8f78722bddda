"""Alerts of a failed run, and a day without one, by sensors that are off until they are turned
on."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from orchestration.settings.load import load_settings
from warehouse.sanitize.redact import redact
from warehouse.sanitize.untrusted_text import escape_text

_FAILURE = "dagster._core.definitions.events.Failure: "


def find_reason(event: Any) -> str:
    """Why a step failed, as its own code or the error that began it says."""
    failure = event.step_failure_data.user_failure_data
    if failure and failure.description:
        return failure.description
    return find_innermost(event)


def find_innermost(event: Any) -> str:
    """The message of the error that began it; of ours, where one tells it in words for people."""
    error = event.event_specific_data.error
    while error and error.cause and error.cls_name != "Failure":
        error = error.cause
    return error.message.strip().removeprefix(_FAILURE) if error else "failed"


_LONGEST = 600  # characters of a message
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SILENT_HOURS = 26  # without a nightly run, before a message is sent
_ATTEMPTS = 3
_PAUSE_S = 1.0
_TIMEOUT_S = 10.0
_MOST_BYTES = 65_536  # of an answer, of which only the status is read


class AlertUnsent(RuntimeError):
    """The webhook took no message; the address, a secret, is not in it."""


def make_failure_message(run: dg.DagsterRun, error: str) -> dict[str, str]:
    """What a webhook is told of a failed run: job, partition and the first line of the error, with
    secrets taken out and no `<…>` of it taken for a link or a mention."""
    name = " ".join(filter(None, [run.job_name, run.tags.get("dagster/partition")]))
    return _make_message(f"toolmill: {name} failed ({run.run_id[:8]}): {error}")


def make_silence_message(last: float | None) -> dict[str, str]:
    """What a webhook gets after 26 hours without a nightly run. last: its epoch seconds."""
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last)) if last else "never"
    return _make_message(
        f"toolmill: no nightly run began for {_SILENT_HOURS} hours; the last one: {day}. Look"
        " whether the daemon is up and nightly_schedule is on"
    )


def _make_message(text: str) -> dict[str, str]:
    plain, length = [], 0
    for sign in escape_text(redact(" ".join(text.split()))):
        written = _MARKUP.get(sign, sign)
        length += len(written)
        if length > _LONGEST:
            break
        plain.append(written)
    return {"text": "".join(plain)}


def send_message(webhook: str, message: Mapping[str, str], *, pause_s: float = _PAUSE_S) -> None:
    """Posts a message to the webhook, and nowhere that it leads to; at most three times where it
    cannot be reached or is busy. Raises AlertUnsent."""
    import httpx2

    from warehouse.network.http import open_client

    host = urlsplit(webhook).hostname or ""
    why = ""
    with open_client(trusted=[host], timeout=_TIMEOUT_S, most_bytes=_MOST_BYTES) as client:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(pause_s * 2 ** (attempt - 1))
            try:
                status = client.post(webhook, json=dict(message)).status_code
            except httpx2.HTTPError as error:
                why = type(error).__name__
                continue
            if 200 <= status < 300:
                return
            why = f"status {status}"
            if status != 429 and status < 500:
                break
    raise AlertUnsent(f"webhook on {host}: {why}; see [alerts] webhook")


def read_webhook() -> str | None:
    webhook = load_settings().alerts.webhook
    return webhook.get_secret_value() if webhook else None


@dg.run_failure_sensor(
    name="alert_on_failure",
    minimum_interval_seconds=60,
    description="Tells the webhook of [alerts] of every run that failed.",
)
def alert_on_failure(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
    webhook = read_webhook()
    if webhook is None:
        return dg.SkipReason("no [alerts] webhook is set")
    reasons = [find_reason(event) for event in context.get_step_failure_events()]
    error = (reasons or [context.failure_event.message or "no step says why"])[0]
    send_message(webhook, make_failure_message(context.dagster_run, error))
    return None


@dg.sensor(
    name="alert_on_silence",
    minimum_interval_seconds=600,
    description="Tells the webhook of [alerts] when no nightly run began for 26 hours.",
)
def alert_on_silence(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    webhook = read_webhook()
    if webhook is None:
        return dg.SkipReason("no [alerts] webhook is set")
    last = find_last_nightly(context.instance)
    cursor = "never" if last is None else f"{last:.3f}"
    # One further ahead was noted by a clock that has been set back since.
    if last is not None and abs(time.time() - last) < _SILENT_HOURS * 3600:
        return dg.SensorResult(cursor="", skip_reason="a nightly run began in time")
    if context.cursor == cursor:
        return dg.SkipReason("it was told of already")
    send_message(webhook, make_silence_message(last))
    return dg.SensorResult(cursor=cursor, skip_reason="the webhook was told")


def find_last_nightly(instance: dg.DagsterInstance) -> float | None:
    """When the last nightly run was asked for (epoch seconds); None before the first."""
    records = instance.get_run_records(dg.RunsFilter(job_name="nightly"), limit=1)
    return records[0].create_timestamp.timestamp() if records else None
