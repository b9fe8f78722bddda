"""Why a step failed, out of Dagster's events."""

from typing import Any


def find_reason(event: Any) -> str:
    """Why a step failed, as its own code or the error that began it says."""
    data = event.step_failure_data
    failure = data.user_failure_data
    if failure and failure.description:
        return failure.description
    return find_innermost(event)


def find_innermost(event: Any) -> str:
    """The message of the error that began it."""
    error = event.event_specific_data.error
    while error and error.cause:
        error = error.cause
    return error.message.strip() if error else "failed"
