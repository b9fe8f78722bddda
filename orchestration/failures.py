"""Why a step failed, out of Dagster's events."""

from typing import Any

_FAILURE = "dagster._core.definitions.events.Failure: "


def find_reason(event: Any) -> str:
    """Why a step failed, as its own code or the error that began it says."""
    data = event.step_failure_data
    failure = data.user_failure_data
    if failure and failure.description:
        return failure.description
    return find_innermost(event)


def find_innermost(event: Any) -> str:
    """The message of the error that began it; of ours, where one tells it in words for people."""
    error = event.event_specific_data.error
    while error and error.cause and error.cls_name != "Failure":
        error = error.cause
    return error.message.strip().removeprefix(_FAILURE) if error else "failed"
