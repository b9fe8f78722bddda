"""What a run prints: one line a stage, progress now and then, nothing per record."""

import io
import logging
import re
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from orchestration.runs.console import (
    FAILED,
    MADE,
    NOTE,
    PROGRESS,
    START,
    WARNING,
    ConsoleLine,
    RunView,
    read_record,
)
from tests.support.cases import cases
from warehouse.progress import ProgressLines


def record(text: str, level: int = logging.INFO, **meta: Any) -> logging.LogRecord:
    log_record = logging.LogRecord("dagster", level, __file__, 1, text, None, None)
    log_record.dagster_meta = {"step_key": "pairs", "orig_message": text, **meta}
    return log_record


def event(kind: str, **data: Any) -> SimpleNamespace:
    return SimpleNamespace(event_type_value=kind, **data)


def view(*, terminal: bool = False, times: list[float] | None = None) -> tuple[RunView, Console]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    clock = iter(times or [])
    return RunView(console, (lambda: next(clock)) if times else lambda: 0.0), console


def shown(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    return [" ".join(line.split()) for line in text.splitlines()]


def error(message: str, name: str = "E", cause: Any = None) -> SimpleNamespace:
    return SimpleNamespace(message=message, cls_name=name, cause=cause)


def run_failure(cause: Any) -> SimpleNamespace:
    outer = cause and error("resource failed", "Dagster", cause)
    return event("PIPELINE_FAILURE", event_specific_data=SimpleNamespace(error=outer))


def materialized(**counts: int) -> SimpleNamespace:
    rows = {f"dagster/{name}": SimpleNamespace(value=count) for name, count in counts.items()}
    metadata = SimpleNamespace(metadata={**rows, "other": SimpleNamespace(value=1)})
    data = SimpleNamespace(materialization=metadata)
    return event("ASSET_MATERIALIZATION", step_materialization_data=data)


WAITS = "Dependencies for step pairs"
NO_MODEL = error("TypeError: no model\n", "TypeError")
NO_ROWS = SimpleNamespace(user_failure_data=SimpleNamespace(description="no rows"), error=None)
UNPUBLISHED = error(
    "dagster._core.definitions.events.Failure: listings is not published: empty\n",
    "Failure",
    cause=error("ExceptionGroup: 1 sub-exception"),
)


@cases(
    "said, expected",
    (event("STEP_START"), (START, "glama pairs", "")),
    (materialized(row_count=7), (MADE, "glama pairs", "count=7")),
    (materialized(row_count=7, partition_row_count=0), (MADE, "glama pairs", "count=0")),
    (event("STEP_FAILURE", step_failure_data=NO_ROWS), (FAILED, "glama pairs", "no rows")),
    (event("HANDLED_OUTPUT"), None),
    (run_failure(None), None),  # of a step, which was told of
    ("pairs 3/9 usd=0.0", (PROGRESS, "glama pairs", "pairs 3/9 usd=0.0")),
    ("0 tools are held", (NOTE, "glama pairs", "0 tools are held")),
    ("[pipes] external process successfully opened dagster pipes.", None),
)
def test_records_are_told_apart_and_book_keeping_is_left_out(said, expected):
    told = record(said) if isinstance(said, str) else record("", dagster_event=said)
    assert read_record(told, "glama") == (expected and ConsoleLine(*expected))


@cases(
    "level, text, expected",
    (logging.DEBUG, "debug", None),
    (logging.WARNING, "set a key", "set a key"),
    (logging.ERROR, f"{WAITS} failed: ['listings', 'snapshots']. Not executing.",
     "not run: it needs listings, snapshots"),
    # A stage after those that wait for the failed one.
    (logging.ERROR, f"{WAITS} were not executed: ['deployments']. Not executing.", None),
)  # fmt: skip
def test_warnings_and_what_waits_for_a_failed_stage_are_told(level, text, expected):
    line = read_record(record(text, level))
    assert line == (expected and ConsoleLine(WARNING, "pairs", expected))


@cases(
    "cause, expected",
    (NO_MODEL, "TypeError: no model"),
    (UNPUBLISHED, "listings is not published: empty"),
)
def test_a_run_that_failed_is_told_in_our_own_words(cause, expected):
    failed = record("", step_key=None, job_name="train", dagster_event=run_failure(cause))
    assert read_record(failed) == ConsoleLine(FAILED, "train", expected)


def test_without_a_terminal_progress_is_rare_and_on_one_what_is_at_work_is_a_block():
    plain, console = view(times=[0.0, 1.0, 5.0, 30.0, 30.0, 31.0])
    plain.show(ConsoleLine(START, "pairs", ""))
    for done in (1, 2, 3):
        plain.show(ConsoleLine(PROGRESS, "pairs", f"pairs {done}/3"))
    plain.show(ConsoleLine(MADE, "pairs", "count=3"))
    assert shown(console) == ["30.0s pairs pairs 3/3", "31.0s pairs count=3"]
    live, console = view(terminal=True)
    with live.open():
        live.show(ConsoleLine(START, "glama pairs", ""))
        live.show(ConsoleLine(PROGRESS, "glama pairs", "pairs 1/3"))
        live.show(ConsoleLine(MADE, "glama pairs", "count=3"))
        live.show(ConsoleLine(FAILED, "glama judgements", "no judge"))
    text = "\n".join(shown(console))
    assert "glama pairs count=3" in text
    assert "glama judgements no judge" in text


def test_a_total_that_grows_makes_no_line_per_record_and_no_stage_can_steer_the_terminal():
    lines: list[str] = []
    progress = ProgressLines(lines.append, every_s=3.0, clock=lambda: 0.0)
    for count in range(1, 50):
        progress.update("records", count, count)
    assert lines == ["records 1/1"]
    progress.update("deployments", 1, 2)
    progress.update("deployments", 2, 2)
    assert lines[1:] == ["deployments 1/2", "deployments 2/2"]
    run, console = view()
    run.show(ConsoleLine(FAILED, "pairs", "\x1b[2J\x9b1m\u202enpm said\nso"))
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()
    assert first.isprintable()
    assert "\\u{1b}[2J" in first
    assert second.strip() == "so"
