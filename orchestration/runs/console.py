"""What a run prints on a terminal: a line a step, and the lines its work reports."""

import logging
import time
from typing import Any

import dagster as dg
from rich.console import Console

_SHOWN = ("dagster/row_count", "new", "stale", "gone", "unchanged", "version_moved")


class _Lines(logging.Handler):
    """Prints step ends, refusals and our own messages; leaves out Dagster's book-keeping."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._started = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        meta: dict[str, Any] = getattr(record, "dagster_meta", {})
        event = getattr(meta.get("dagster_event"), "event_type_value", None)
        step = (meta.get("step_key") or "").removesuffix(" ")
        if event == "ASSET_MATERIALIZATION":
            self._line(step, _figures(meta["dagster_event"]), "green")
        elif event == "STEP_FAILURE":
            self._line(step, _reason(meta["dagster_event"]), "red")
        elif event is None and record.levelno >= logging.INFO:
            text = str(meta.get("orig_message") or record.getMessage())
            self._line(step, text, "yellow" if record.levelno >= logging.WARNING else "dim")

    def _line(self, step: str, text: str, style: str) -> None:
        seconds = time.monotonic() - self._started
        self._console.print(f"{seconds:6.1f}s  {step:<22} {text}", style=style, markup=False)


def _figures(event: Any) -> str:
    metadata = event.step_materialization_data.materialization.metadata
    parts = [
        f"{name.removeprefix('dagster/row_')}={metadata[name].value}"
        for name in _SHOWN
        if name in metadata
    ]
    return "made " + " ".join(parts)


def _reason(event: Any) -> str:
    data = event.step_failure_data
    failure = data.user_failure_data
    if failure and failure.description:
        return failure.description
    error = data.error
    while error and error.cause:
        error = error.cause
    return error.message.strip() if error else "failed"


@dg.logger
def terminal(_: dg.InitLoggerContext) -> logging.Logger:
    """Short lines on stderr."""
    logger = logging.getLogger("toolmill.terminal")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(_Lines())
    return logger
