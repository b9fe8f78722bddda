"""What a run prints: a live view on a terminal, one line a stage; plain lines elsewhere."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from orchestration.alerts import find_innermost, find_reason
from warehouse.sanitize.untrusted_text import escape_lines, escape_text

START, PROGRESS, NOTE = "start", "progress", "note"
WARNING, MADE, FAILED = "warning", "made", "fail"
_STYLES = {NOTE: "dim", WARNING: "yellow", MADE: "green", FAILED: "red", PROGRESS: "dim"}
_FIGURES = ("count", "new", "stale", "gone", "unchanged", "version_moved")
_COUNTED = re.compile(r"\b\d+/\d+\b|\bsteps=\d+")  # the lines of `warehouse.progress` and of losses
_NOT_RUN = re.compile(
    r"Dependencies for step \S+ (?:failed: \[(?P<failed>.*?)\]|were not executed)"
)
_PIPES = "[pipes] external process successfully opened"
_PLAIN_EVERY_S = 20.0


@dataclass(frozen=True)
class ConsoleLine:
    kind: str
    stage: str
    text: str


def read_record(record: logging.LogRecord, partition: str | None = None) -> ConsoleLine | None:
    """What a record of Dagster's log says to a reader; None for its book-keeping."""
    meta: dict[str, Any] = getattr(record, "dagster_meta", {})
    event: Any = meta.get("dagster_event")
    stage = " ".join(filter(None, [partition, (meta.get("step_key") or "").strip()]))
    kind = getattr(event, "event_type_value", None)
    if kind == "STEP_START":
        return ConsoleLine(START, stage, "")
    if kind == "ASSET_MATERIALIZATION":
        return ConsoleLine(MADE, stage, _format_figures(event))
    if kind == "STEP_FAILURE":
        return ConsoleLine(FAILED, stage, find_reason(event))
    if kind == "PIPELINE_FAILURE" and event.event_specific_data.error is not None:
        return ConsoleLine(
            FAILED, stage or str(meta.get("job_name") or "run"), find_innermost(event)
        )
    if kind is not None or record.levelno < logging.INFO:
        return None
    text = str(meta.get("orig_message") or record.getMessage())
    if text.startswith(_PIPES):
        return None
    if waited := _NOT_RUN.match(text):  # of those further down nothing is said: they are many
        failed = (waited["failed"] or "").replace("'", "")
        return ConsoleLine(WARNING, stage, f"not run: it needs {failed}") if failed else None
    if record.levelno >= logging.WARNING:
        return ConsoleLine(WARNING, stage, text)
    return ConsoleLine(PROGRESS if _COUNTED.search(text) else NOTE, stage, text)


class RunView:
    """Shows the stages of a run: those at work in a live block, those that ended as lines."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._clock, self._started = clock, clock()
        self._live = Progress(
            SpinnerColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[text]}", markup=False, style="dim"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._shown_at: dict[str, float] = {}

    @contextmanager
    def open(self) -> Iterator["RunView"]:
        with self._live:
            yield self

    def show(self, line: ConsoleLine) -> None:
        if self._console.is_terminal:
            if line.kind == START:
                self._tasks[line.stage] = self._live.add_task(line.stage, total=None, text="")
            elif line.kind in (PROGRESS, NOTE):
                if (task := self._tasks.get(line.stage)) is not None:
                    self._live.update(task, text=escape_text(line.text[:100]))
            else:
                if line.kind in (MADE, FAILED) and line.stage in self._tasks:
                    self._live.remove_task(self._tasks.pop(line.stage))
                self._print(line)
        elif line.kind != START and not (line.kind == PROGRESS and self._is_early(line.stage)):
            self._print(line)

    def _is_early(self, stage: str) -> bool:
        now = self._clock()
        early = now - self._shown_at.setdefault(stage, now) < _PLAIN_EVERY_S
        if not early:
            self._shown_at[stage] = now
        return early

    def _print(self, line: ConsoleLine) -> None:
        seconds = self._clock() - self._started
        text = escape_lines(f"{seconds:6.1f}s  {line.stage:<28} {line.text}")
        self._console.print(text, style=_STYLES.get(line.kind), markup=False)


class _LineHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.show: Callable[[ConsoleLine], None] = RunView().show
        self.partition: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if (line := read_record(record, self.partition)) is not None:
            self.show(line)


_HANDLER = _LineHandler()


def send_lines(show: Callable[[ConsoleLine], None]) -> None:
    _HANDLER.show = show


def name_partition(partition: str | None) -> None:
    _HANDLER.partition = partition


@dg.logger
def terminal(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.getLogger("toolmill.terminal")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    if _HANDLER not in logger.handlers:
        logger.addHandler(_HANDLER)
    return logger


def _format_figures(event: Any) -> str:
    metadata = event.step_materialization_data.materialization.metadata
    rows = [metadata.get(f"dagster/{name}") for name in ("partition_row_count", "row_count")]
    figures = {**metadata, "count": next((each for each in rows if each is not None), None)}
    values = [(name, figures.get(name)) for name in _FIGURES]
    return (
        " ".join(f"{name}={value.value}" for name, value in values if value is not None) or "made"
    )
